-- Constants of all scripts. `script.rs` writes each value in place of the name: a local that many functions name makes each of
-- these functions slower to make.

-- A limit or a time that is not set.
local NEVER = math.huge
-- A sum above 2^53 is `high * CARRY + low`.
local CARRY = 1000000000000000
-- Formats of records. A longer record of a key or a group has a group, a rotation or bounds (`budgets.lua`); with this
-- byte behind its numbers, a rotation alone.
local KEY = '>ddddddd'
local KEY_SIZE = 56
local ROTATED = 4
local GROUP = '>ddddd'
local GROUP_SIZE = 40
-- Groups in the account's hash have this before the id.
local GROUP_FIELD = 'g'
-- `NanoUsd::MAX`.
local MAX = 9000000000000000
-- Milliseconds.
local REMEMBERED = 7200000
local CLOCK_LEAD = 60000
local HOUR = 3600000
-- Seconds that a settled generation is kept after the hour of its start, and an expired generation after the expiry.
local SETTLED_KEPT = 14400
local EXPIRED_KEPT = 2764800
-- Bounds of counters, and of the tokens of a request.
local COUNTED = 9007199254740991
local COUNTED_PER_REQUEST = 1000000000000
-- Commands.
local CHECK = 1
local HOLD = 2
local EXTEND = 3
local CAPTURE = 4
local RELEASE = 5
local EXPIRE = 6
local DEPOSIT = 7
local TICK = 8
-- Endings of bills, and flags beside them: the cost to the operator and the details of the usage follow the payer.
local CAPTURED = 0
local ESTIMATED = 1
local EXPIRED = 2
local UPSTREAM_COST = 16
local DETAILS = 32
local FLAGS = 16
local NEEDS_CHAINS = 'a record needs chains'
local COMMAND = '>BHHHHdddd' -- plain
local COMMAND = '>BHHHHddddd' -- chain
local COMMAND_SIZE = 41 -- plain
local COMMAND_SIZE = 49 -- chain
local BILL = '>BdI8I8I8'
local BILL_SIZE = 33
local FUNDS = '>dddddd'
local FUNDS_SIZE = 48
local LAST_DEPOSIT = '>dd'
local COUNTS = '>ddddd'
local COUNTS_SIZE = 40
local HOLD_SIZE = 68
local HOLD_BILL = 18
local HOLD_PAYER = 51
local SETTLED_SIZE = 92
local SETTLED_BILL = 42
local SETTLED_PAYER = 75
-- Units of a rate in which a request or a token is counted, and bounds of counted tokens and units.
local RATE_UNITS = 60000
local MOST_TOKENS = 50000000000
local MOST_TAKEN = 6000000000000000
-- Bits of the length of a payer's model: a group follows, and its parent.
local GROUP_BIT = 32768
local PARENT_BIT = 16384
-- Names of hashes and arguments.
local ACCOUNT = KEYS[1]
local HOLDS = KEYS[2]
local JOURNAL = KEYS[3]
local DEPOSITS = KEYS[4]
local COUNTERS = KEYS[5]
local PLACES = ARGV[2]
local COMMANDS = ARGV[3]
local BILLS = ARGV[4]
local BEFORE_IDS = 4

