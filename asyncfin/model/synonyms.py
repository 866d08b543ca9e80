"""What analysts call the lines of financial statements: the synonyms of the search."""

# A line for each meaning. A label means it if it has exactly the words of one of its
# phrases, apart from words that say little: "sales" is revenue, "sales commissions" is
# not.
MEANINGS = """
revenue = sales = turnover = net revenue = net sales = sales revenue net
 = revenue from contract with customer excluding assessed tax
 = revenue from contract with customer including assessed tax
cost of revenue = cost of sales = cogs = cost of goods sold
 = cost of goods and services sold
 = cost of products sold
operating income = operating profit = operating earnings = income from operations
 = profit from operations
 = earnings from operations
income before tax = pretax income = pre tax income = income before income tax
 = earnings before tax
 = profit before tax = pretax profit = pre tax profit = profit before income tax
 = income before provision for income tax
 = income from continuing operations before income tax
 = income from continuing operations before income taxes noncontrolling interest
income tax = income tax expense = income tax expense benefit = income tax provision
 = provision for income tax
 = tax provision = tax expense
effective tax rate = effective income tax rate
 = effective income tax rate reconciliation percent
net income = net profit = net earnings = profit = earnings
interest expense = interest expense debt = interest and debt expense
 = interest expense nonoperating
r&d = r&d expense = research and development expense = research and development cost
sg&a = sg&a expense = selling general and administrative
 = selling general and administrative expense
d&a = depreciation and amortization = depreciation and amortization expense
 = depreciation depletion and amortization
stock based compensation = sbc = stock based compensation expense = stock compensation
 = stock compensation expense = share based compensation
 = share based compensation expense
 = share based payment expense = allocated share based compensation expense
operating cash flow = cash flow from operations = cash from operations
 = cash flow from operating activities
 = cash flow from used in operating activities = net cash from operating activities
 = net cash provided by operating activities = net cash used in operating activities
 = net cash provided by used in operating activities
investing cash flow = cash flow from investing = cash from investing
 = cash flow from investing activities
 = cash flow from used in investing activities = net cash from investing activities
 = net cash provided by investing activities = net cash used in investing activities
 = net cash provided by used in investing activities
financing cash flow = cash flow from financing = cash from financing
 = cash flow from financing activities
 = cash flow from used in financing activities = net cash from financing activities
 = net cash provided by financing activities = net cash used in financing activities
 = net cash provided by used in financing activities
capital expenditure = capex = capital spending
 = purchases of property plant and equipment
 = purchases of property and equipment
 = payments to acquire property plant and equipment
dividends paid = cash dividends paid = payments of dividends
 = payments of ordinary dividends
 = payments of dividends common stock = payments of ordinary dividends common stock
dividends per share = common stock dividends per share declared
 = common stock dividends per share cash paid
buyback = share buyback = stock buyback = repurchase = share repurchase
 = stock repurchase
 = repurchase of common stock = payments for repurchase of common stock
cash and equivalents = cash and cash equivalents
 = cash and cash equivalents at carrying value
inventory = inventory net
 = inventory net of allowances customer advances and progress billings
receivables = accounts receivable = trade receivables = accounts receivable net
 = accounts receivable net current = receivables net = receivables net current
payables = accounts payable = trade payables = accounts payable current
 = accounts payable trade current
pp&e = net pp&e = fixed assets = property plant and equipment
 = property plant and equipment net
intangible assets = intangible assets net = intangible assets net excluding goodwill
debt = debt long term and short term combined amount
 = debt and capital lease obligations
equity = stockholders equity = shareholders equity = book value
 = stockholders equity including portion attributable to noncontrolling interest
shares outstanding = common shares outstanding = common stock shares outstanding
 = entity common stock shares outstanding
"""

# Words that mean the same within any label. {liability, debt} do not.
ALIKE = (
    "revenue sale turnover",
    "profit earning",
    "buyback repurchase",
    "debt borrowing",
    "inventory stock",
    "equity shareholder stockholder",
    "dividend payout",
)

# What these stand for, in labels and in what people search for; "R&D" is read as "rd".
ABBREVIATIONS = {
    "eps": "earnings per share",
    "dps": "dividends per share",
    "rd": "research and development",
    "sga": "selling general and administrative",
    "da": "depreciation and amortization",
    "ppe": "property plant and equipment",
    "oci": "other comprehensive income",
    "aoci": "accumulated other comprehensive income",
}
