-- Effect of commands on an account, and on its keys and groups: `domain/ledger.rs` for Redis, in the same order and terms.
-- If the two differ, the script is wrong.
--
-- The parts are a single script, joined in this order: `../constants`, `../key`, `../budgets`; `arguments`; `payer`; `load`
-- reads everything once; `chain`, `funds`, `thresholds` and `commands` decide command by command, as `domain/ledger/funds.rs` and `domain/ledger.rs` do; `write`
-- writes all changes once. Nothing is written before the last decision, so an error leaves everything unchanged.
--
-- Most accounts have neither groups nor bounds besides limits. For these, `script.rs` leaves out `../budgets`, `payer`,
-- `chain` and all lines that end with `-- chain`: what nobody uses takes no time. That script stops at the first record
-- that has more, with the error `NEEDS_CHAINS`. Lines that end with `-- plain` are in that script only.
--
-- Records are packed with `struct`, which costs Redis a fifth of what texts cost. Amounts are nano-USD below 2^53, exact
-- as doubles. A `bill` is an ending, a cost and a usage, a `payer` the id of a key, a model and the ids of groups.
-- `records.rs` and `../records.rs` have all formats, `batch.rs` the arguments.
--
-- KEYS  the account, its holds, journal, deposits and counters of today; then hashes of settled and of expired generations;
--       where something may be billed, with chains the spend of today by group, then the keys by spend, and the spend of today
--       by model; last the events, the numbers of events, and the index of events
-- ARGV  1 the settings; 2 for each generation the places of its two hashes among KEYS; 3 the commands; 4 their bills;
--       then the ids of generations, the ids of deposits, their events behind their ids, their notes with payments, 'funds', the ids of keys, the payers, and the further parts of
--       bills: of each bill with a flag, the flagged parts; last, where a command has one, the numbers of credentials that
--       are no key's first
--
-- Answers a number or a text for each command; nothing where the account does not exist.

local NOTHING_USED = '\2' .. string.rep('\0', 32)

-- The first generations are to be held (`holding`), and the first of all share two hashes (`alike`).
local now, most_entries, counters_kept, hour, holding, alike, generations, deposits, named, next_setting =
  read('>ddddHHHHH', ARGV[1])
-- As in `../act_arguments`.
local EVENTS_KEPT
EVENTS_KEPT, next_setting = sub(ARGV[1], next_setting, next_setting + 31), next_setting + 32
local payer_count, STARTS -- chain
payer_count, next_setting = read('>H', ARGV[1], next_setting) -- chain
-- Beginnings of the hour, the day, the week and the month.
STARTS, next_setting = { read('>dddd', ARGV[1], next_setting) }, next_setting + 32 -- chain
-- Names of the commands in this batch. Only these functions are made: making a function takes longer than running it.
local present = {}
for n = next_setting, #ARGV[1] do present[string.byte(ARGV[1], n)] = true end
local settles = present[CAPTURE] or present[EXPIRE]
local BEFORE_KEYS = BEFORE_IDS + generations + 3 * deposits + 1
local BEFORE_PAYERS = BEFORE_KEYS + named
local BEFORE_PARTS = BEFORE_PAYERS + payer_count -- chain
local EVENTS = KEYS[#KEYS-2]
local NUMBERS = KEYS[#KEYS-1]
local INDEX = KEYS[#KEYS]

local function left_after(n, taken)
  if n > taken then return n - taken end
  return 0
end

local function min(a, b)
  if a < b then return a end
  return b
end

local function written(n) return string.format('%.0f', n) end

-- Keeps the lower part of a sum exact.
local carry = settles and function(budget)
  if budget.low >= CARRY or budget.low < 0 then
    local carried = math.floor(budget.low / CARRY)
    budget.high, budget.low = budget.high + carried, budget.low - carried * CARRY
  end
end
