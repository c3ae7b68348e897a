-- Effect of commands on an account and the account's keys: `domain/ledger.rs` for Redis, in the same order and terms.
-- If the two differ, the script is wrong.
--
-- The parts are a single script, joined in this order: `../key`; `arguments`; `load` reads everything once; `funds` and
-- `commands` decide command by command, as `domain/ledger/funds.rs` and `domain/ledger.rs` do; `write` writes all
-- changes once. Nothing is written before the last decision, so an error leaves everything unchanged.
--
-- Records are packed with `struct`, which costs Redis a fifth of what texts cost. Amounts are nano-USD below 2^53, exact
-- as doubles. A `bill` is an ending, a cost and a usage, a `payer` the id
-- of a key and a model. `records.rs` has all formats, `batch.rs` the arguments.
--
-- KEYS  the account, its holds, journal, deposits and counters of today; then hashes of settled and of expired generations;
--       last, where something may be billed, the keys by spend, and the spend of today by model
-- ARGV  1 the settings; 2 for each generation the places of its two hashes among KEYS; 3 the commands; 4 their bills;
--       then the ids of generations, the ids of deposits, 'funds', the ids of keys, the payers
--
-- Answers a number or a text for each command; nothing where the account does not exist.

local MAX = 9000000000000000 -- `NanoUsd::MAX`
local REMEMBERED, CLOCK_LEAD, HOUR = 7200000, 60000, 3600000
-- Seconds that a settled generation is kept after the hour of its start, and an expired generation after the expiry.
local SETTLED_KEPT, EXPIRED_KEPT = 14400, 2764800
local COUNTED, COUNTED_PER_REQUEST = 9007199254740991, 1000000000000
local CHECK, HOLD, EXTEND, CAPTURE, RELEASE, EXPIRE, DEPOSIT, TICK = 1, 2, 3, 4, 5, 6, 7, 8
local CAPTURED, ESTIMATED, EXPIRED = 0, 1, 2
local COMMAND, COMMAND_SIZE, BILL, BILL_SIZE = '>BHHHHdddd', 41, '>BdI8I8I8', 33
local FUNDS, COUNTS = '>dddddd', '>ddddd'
local HOLD_SIZE, HOLD_BILL, HOLD_PAYER, SETTLED_SIZE, SETTLED_BILL, SETTLED_PAYER = 68, 18, 51, 92, 42, 75
local NOTHING_USED = '\2' .. string.rep('\0', 32)
local ACCOUNT, HOLDS, JOURNAL, DEPOSITS, COUNTERS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local PLACES, COMMANDS, BILLS, BEFORE_IDS = ARGV[2], ARGV[3], ARGV[4], 4

local call, pack, read, sub = redis.call, struct.pack, struct.unpack, string.sub
-- The first generations are to be held (`holding`), and the first of all share two hashes (`alike`).
local now, most_entries, counters_kept, hour, holding, alike, generations, deposits, named =
  read('>ddddHHHHH', ARGV[1])
-- Names of the commands in this batch. Only these functions are made: making a function takes longer than running it.
local present = {}
for n = 43, #ARGV[1] do present[string.byte(ARGV[1], n)] = true end
local settles = present[CAPTURE] or present[EXPIRE]
local BEFORE_KEYS = BEFORE_IDS + generations + deposits + 1
local BEFORE_PAYERS = BEFORE_KEYS + named

local function left_after(n, taken)
  if n > taken then return n - taken end
  return 0
end

local function min(a, b)
  if a < b then return a end
  return b
end

local function written(n) return string.format('%.0f', n) end
