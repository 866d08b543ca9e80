"""What the demo dataset shows, in our own words: the metrics, and the scopes of each
company.

Concepts are those of the filings. Several concepts of one metric are names that
it was filed under over the years.
"""

from __future__ import annotations

from attrs import frozen

PATTERNS = {"USD": "#,##0", "USD per share": "0.00", "shares": "#,##0", "ratio": "0.0%"}


@frozen
class Metric:
    """One metric_id with its words, its unit, and the concepts that it is read from."""

    metric_id: str
    label: str
    description: str
    number_format: str
    period_meaning: str
    concepts: tuple[str, ...]


# metric_id | label | what it is | unit | concepts, perhaps over several lines
_PRETAX = "IncomeLossFromContinuingOperationsBeforeIncomeTaxes"
_FLOWS = f"""
Revenue | Revenue | Sales of goods and services | USD | Revenues
    RevenueFromContractWithCustomerExcludingAssessedTax SalesRevenueNet
CostOfRevenue | Cost of revenue | What the goods and services sold have cost | USD | CostOfRevenue
    CostOfGoodsAndServicesSold
GrossProfit | Gross profit | Revenue less its cost | USD | GrossProfit
ResearchAndDevelopment | Research and development | Spent on new products | USD |
    ResearchAndDevelopmentExpense
SellingGeneralAdministrative | Selling and administration | Selling and running the company | USD |
    SellingGeneralAndAdministrativeExpense
SalesAndMarketing | Sales and marketing | Selling and advertising | USD |
    SellingAndMarketingExpense
GeneralAdministrative | General and administrative | Running the company | USD |
    GeneralAndAdministrativeExpense
OperatingExpenses | Operating expenses | Expenses beyond the cost of revenue | USD |
    OperatingExpenses
CostsAndExpenses | Costs and expenses | All costs that lower operating income | USD |
    CostsAndExpenses
OperatingIncome | Operating income | Revenue less operating costs | USD | OperatingIncomeLoss
OtherIncome | Other income, net | Income from outside the operations | USD |
    NonoperatingIncomeExpense
InterestIncome | Interest income | Interest earned | USD | InvestmentIncomeInterest
    InterestIncomeOther
InterestExpense | Interest expense | Interest owed on debt | USD | InterestExpense
PretaxIncome | Income before tax | Income before taxes on it | USD |
    {_PRETAX}ExtraordinaryItemsNoncontrollingInterest
    {_PRETAX}MinorityInterestAndIncomeLossFromEquityMethodInvestments
IncomeTax | Income tax | Taxes on the income of the period | USD | IncomeTaxExpenseBenefit
EffectiveTaxRate | Effective tax rate | Income tax per income before tax | ratio |
    EffectiveIncomeTaxRateContinuingOperations
NetIncome | Net income | What is left for the shareholders | USD | NetIncomeLoss
ComprehensiveIncome | Comprehensive income | Net income and the changes that pass it by | USD |
    ComprehensiveIncomeNetOfTax
EPS | Earnings per share | Net income per share | USD per share | EarningsPerShareBasic
DilutedEPS | Diluted earnings per share | EPS, were all awards shares | USD per share |
    EarningsPerShareDiluted
DividendsPerShare | Dividends per share | Declared for one share | USD per share |
    CommonStockDividendsPerShareDeclared
Shares | Average shares | Shares outstanding, averaged over the period | shares |
    WeightedAverageNumberOfSharesOutstandingBasic
DilutedShares | Average diluted shares | Average, were all awards shares | shares |
    WeightedAverageNumberOfDilutedSharesOutstanding
OperatingCashFlow | Operating cash flow | Cash that the operations brought in | USD |
    NetCashProvidedByUsedInOperatingActivities
InvestingCashFlow | Investing cash flow | Cash from investments, net | USD |
    NetCashProvidedByUsedInInvestingActivities
FinancingCashFlow | Financing cash flow | Cash from owners and lenders, net | USD |
    NetCashProvidedByUsedInFinancingActivities
CapitalExpenditure | Capital expenditure | Paid for property and equipment | USD |
    PaymentsToAcquirePropertyPlantAndEquipment PaymentsToAcquireProductiveAssets
Depreciation | Depreciation and amortization | Wear of what lasts for years | USD |
    DepreciationAmortizationAndAccretionNet DepreciationDepletionAndAmortization
    DepreciationAndAmortization
ShareBasedPay | Share-based pay | Pay in shares, as an expense | USD | ShareBasedCompensation
DividendsPaid | Dividends paid | Cash paid as dividends | USD | PaymentsOfDividends
Buybacks | Share buybacks | Cash paid for own shares | USD | PaymentsForRepurchaseOfCommonStock
TaxesPaid | Taxes paid | Cash paid as income tax | USD | IncomeTaxesPaidNet
TaxesOnAwards | Taxes withheld on awards | Cash paid as tax on pay in shares | USD |
    PaymentsRelatedToTaxWithholdingForShareBasedCompensation
DeferredTax | Deferred tax | Income tax that is not due yet | USD | DeferredIncomeTaxExpenseBenefit
    DeferredIncomeTaxesAndTaxCredits
ReceivablesIncrease | Increase of receivables | More owed by customers | USD |
    IncreaseDecreaseInAccountsReceivable
InventoryIncrease | Increase of inventory | More goods in stock | USD |
    IncreaseDecreaseInInventories
PayablesIncrease | Increase of payables | More owed to suppliers | USD |
    IncreaseDecreaseInAccountsPayable
Acquisitions | Acquisitions | Cash paid for businesses | USD |
    PaymentsToAcquireBusinessesNetOfCashAcquired
DebtIssued | Debt issued | Cash from new debt | USD | ProceedsFromIssuanceOfLongTermDebt
    ProceedsFromDebtNetOfIssuanceCosts
DebtRepaid | Debt repaid | Cash paid back to lenders | USD | RepaymentsOfLongTermDebt
    RepaymentsOfDebt RepaymentsOfDebtAndCapitalLeaseObligations
"""

_BALANCES = """
SharesOutstanding | Shares outstanding | Shares in holders' hands | shares |
    CommonStockSharesOutstanding
Cash | Cash | Cash and what turns into it within three months | USD |
    CashAndCashEquivalentsAtCarryingValue
CashWithRestricted | Cash with restricted cash | Cash as the cash flow statement counts it | USD |
    CashCashEquivalentsRestrictedCashAndRestrictedCashEquivalents
CurrentSecurities | Securities, current | Securities to be sold within a year | USD |
    MarketableSecuritiesCurrent AvailableForSaleSecuritiesCurrent
LongTermSecurities | Securities, long-term | Securities held for longer | USD |
    MarketableSecuritiesNoncurrent AvailableForSaleSecuritiesNoncurrent
Receivables | Receivables | Owed by customers | USD | AccountsReceivableNetCurrent
OtherReceivables | Other receivables | Owed by others than customers | USD |
    NontradeReceivablesCurrent
Inventory | Inventory | Goods made or bought, not yet sold | USD | InventoryNet
CurrentAssets | Current assets | Assets that turn over within a year | USD | AssetsCurrent
PropertyAndEquipment | Property and equipment | Net of depreciation | USD |
    PropertyPlantAndEquipmentNet
LongLivedAssets | Long-lived assets | Property and the like, by where it is | USD |
    NoncurrentAssets
Goodwill | Goodwill | Paid for businesses beyond their net assets | USD | Goodwill
IntangibleAssets | Intangible assets | Patents and the like, net | USD |
    IntangibleAssetsNetExcludingGoodwill FiniteLivedIntangibleAssetsNet
LeaseAssets | Operating lease assets | The right to use what is leased | USD |
    OperatingLeaseRightOfUseAsset
Assets | Total assets | Everything owned | USD | Assets
OtherLongTermAssets | Other assets, long-term | Long-term assets without a line | USD |
    OtherAssetsNoncurrent
Payables | Accounts payable | Owed to suppliers | USD | AccountsPayableCurrent
AccruedLiabilities | Accrued liabilities | Owed, not billed yet | USD | AccruedLiabilitiesCurrent
DeferredRevenue | Deferred revenue, current | Paid for, to be delivered within a year | USD |
    ContractWithCustomerLiabilityCurrent DeferredRevenueCurrent
CommercialPaper | Commercial paper | Short-term notes | USD | CommercialPaper
CurrentLiabilities | Current liabilities | To be paid within a year | USD | LiabilitiesCurrent
CurrentDebt | Long-term debt due | Long-term debt due within a year | USD | LongTermDebtCurrent
LongTermDebt | Long-term debt | Debt due after a year | USD | LongTermDebtNoncurrent
LeaseLiabilities | Operating lease liabilities | Owed for leases | USD | OperatingLeaseLiability
OtherLongTermLiabilities | Other liabilities, long-term | Liabilities without a line | USD |
    OtherLiabilitiesNoncurrent
Liabilities | Total liabilities | Everything owed | USD | Liabilities
PaidInCapital | Paid-in capital | Paid by shareholders for their shares | USD |
    CommonStocksIncludingAdditionalPaidInCapital AdditionalPaidInCapital
RetainedEarnings | Retained earnings | Income kept since the beginning | USD |
    RetainedEarningsAccumulatedDeficit
OtherComprehensive | Other comprehensive income | Changes in value beside the income | USD |
    AccumulatedOtherComprehensiveIncomeLossNetOfTax
Equity | Equity | Assets less liabilities | USD | StockholdersEquity
LiabilitiesAndEquity | Liabilities and equity | The balance's other side | USD |
    LiabilitiesAndStockholdersEquity
PerformanceObligations | Revenue to come | Agreed with customers, not delivered yet | USD |
    RevenueRemainingPerformanceObligation
"""


def _metrics(table: str, period_meaning: str) -> tuple[Metric, ...]:
    """The metrics of a table."""
    lines = table.strip().replace("\n    ", " ").splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return tuple(
        Metric(
            *(
                metric_id,
                label,
                f"{sentence}. Unit: {unit}.",
                PATTERNS[unit],
                period_meaning,
            ),
            tuple(f"us-gaap:{concept}" for concept in concepts.split()),
        )
        for metric_id, label, sentence, unit, concepts in rows
    )


METRICS = _metrics(_FLOWS, "over_period") + _metrics(_BALANCES, "at_period_end")

# scope_group_id: name, description, role of the scopes, basis of the series whose path
# begins there
SCOPE_GROUPS = {
    "company": ("Company", "The company as a whole", "company", "consolidated"),
    "segment": (
        "Segment",
        "The parts by which the company is run",
        "segment",
        "segment",
    ),
    "geography": (
        "Geography",
        "Where the customers or the assets are",
        "geography",
        "geographic",
    ),
    "product": ("Product", "What is sold", "product", "product"),
    "equity": (
        "Part of equity",
        "What equity is made of",
        "equity_component",
        "equity_component",
    ),
}

AXES = {
    "company": "company",
    "us-gaap:StatementBusinessSegmentsAxis": "segment",
    "srt:StatementGeographicalAxis": "geography",
    "us-gaap:StatementGeographicalAxis": "geography",
    "srt:ProductOrServiceAxis": "product",
    "us-gaap:ProductOrServiceAxis": "product",
    "us-gaap:StatementEquityComponentsAxis": "equity",
}

# A segment's figures are filed with this reference or without it; it adds nothing to
# the segment.
LEFT_OUT = ("srt:ConsolidationItemsAxis", "us-gaap:OperatingSegmentsMember")

_EQUITY = {
    "us-gaap:RetainedEarningsMember": "Retained earnings",
    "us-gaap:AccumulatedOtherComprehensiveIncomeMember": "Other comprehensive income",
    "us-gaap:CommonStockIncludingAdditionalPaidInCapitalMember": "Stock and paid-in "
    "capital",
    "us-gaap:CommonStockMember": "Common stock",
    "us-gaap:AdditionalPaidInCapitalMember": "Paid-in capital",
}


@frozen
class Company:
    """A company: where its figures stand, how many publications to keep, the names of
    its scopes.

    wrong: what the filings tag wrongly, as (concept, fiscal year), None for every year.
    """

    file: str
    name: str
    publications: int
    scopes: dict[str, str]
    wrong: tuple[tuple[str, int | None], ...] = ()


_CONSOLIDATED = {"consolidated": "consolidated"}

COMPANIES = {
    "apple": Company(
        "apple-inc-320193.json.gz",
        "Apple",
        1,
        _CONSOLIDATED
        | _EQUITY
        | {
            "aapl:AmericasSegmentMember": "Americas",
            "aapl:EuropeSegmentMember": "Europe",
            "aapl:GreaterChinaSegmentMember": "Greater China",
            "aapl:JapanSegmentMember": "Japan",
            "aapl:RestOfAsiaPacificSegmentMember": "Rest of Asia Pacific",
            "country:US": "United States",
            "country:CN": "China",
            "aapl:OtherCountriesMember": "Other countries",
            "aapl:IPhoneMember": "iPhone",
            "aapl:MacMember": "Mac",
            "aapl:IPadMember": "iPad",
            "aapl:WearablesHomeandAccessoriesMember": "Wearables, home and accessories",
            "us-gaap:ServiceMember": "Services",
            "us-gaap:ProductMember": "All products",
        },
    ),
    "nvidia": Company(
        "nvidia-corp-1045810.json.gz",
        "NVIDIA",
        2,
        _CONSOLIDATED
        | _EQUITY
        | {
            "nvda:ComputeAndNetworkingMember": "Compute & Networking",
            "nvda:ComputeAndNetworkingSegmentMember": "Compute & Networking",
            "nvda:GraphicsMember": "Graphics",
            "nvda:GraphicsSegmentMember": "Graphics",
            "country:US": "United States",
            "country:TW": "Taiwan",
            "country:SG": "Singapore",
            "country:IL": "Israel",
            "nvda:ChinaIncludingHongKongMember": "China with Hong Kong",
            "nvda:OtherCountriesMember": "Other countries",
            "nvda:AllOtherCountriesNotSeparatelyDisclosedMember": "Other countries",
            "nvda:DataCenterMember": "Data center",
            "nvda:ComputeMember": "Compute",
            "nvda:NetworkingMember": "Networking",
            "nvda:GamingMember": "Gaming",
            "nvda:ProfessionalVisualizationMember": "Professional visualization",
            "nvda:AutomotiveMember": "Automotive",
            "nvda:OEMAndOtherMember": "OEM and other",
        },
        wrong=(
            # The last quarter's dividend stands for the year.
            ("us-gaap:CommonStockDividendsPerShareDeclared", 2016),
            # A later filing repeats the amount with the wrong sign.
            ("us-gaap:IncomeTaxesPaidNet", 2013),
            # Four years repeat what one issue brought in.
            ("us-gaap:ProceedsFromIssuanceOfLongTermDebt", None),
        ),
    ),
    "alphabet": Company(
        "alphabet-inc-1652044.json.gz",
        "Alphabet",
        1,
        _CONSOLIDATED
        | _EQUITY
        | {
            "goog:GoogleServicesMember": "Google Services",
            "goog:GoogleCloudMember": "Google Cloud",
            "us-gaap:AllOtherSegmentsMember": "Other Bets",
            "goog:GoogleSearchOtherMember": "Search and other",
            "goog:YouTubeAdvertisingRevenueMember": "YouTube ads",
            "goog:GoogleNetworkMember": "Google Network",
            "goog:GoogleAdvertisingRevenueMember": "All advertising",
            "goog:SubscriptionsPlatformsAndDevicesRevenueMember": "Subscriptions and "
            "devices",
            "goog:OtherRevenuesMember": "Subscriptions and devices",
            "country:US": "United States",
            "us-gaap:NonUsMember": "Elsewhere",
            "us-gaap:EMEAMember": "EMEA",
            "srt:AsiaPacificMember": "Asia Pacific",
            "goog:AmericasExcludingUnitedStatesMember": "Other Americas",
        },
    ),
}
