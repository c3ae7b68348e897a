-- Holds and settlements of chains, and their payers.

-- For the command at hand: the budgets that pay, with `false` for a group that is not there; the tokens used; of its hold the
-- levels (as bits) and tokens that count; of the bill the further parts, and the time of an earlier bill.
local chain, used, levels, tokens, parts, billed_at

-- Size of a payer that begins at a place of a text, and of its model.
local function size_of_payer(text, at)
  local length = read('>I2', text, at + 16)
  local model = length % PARENT_BIT
  local size = 18 + model
  if length >= GROUP_BIT then size = size + 16 end
  if length % GROUP_BIT >= PARENT_BIT then size = size + 16 end
  return size, model
end

-- Groups of a payer.
local function groups_of(payer)
  local length, group, parent = read('>I2', payer, 17), false, false
  local after = 19 + length % PARENT_BIT
  if length >= GROUP_BIT then group, after = sub(payer, after, after + 15), after + 16 end
  if length % GROUP_BIT >= PARENT_BIT then parent = sub(payer, after, after + 15) end
  return group, parent
end

local function read_hold_of_chain(hold, amount, lease_until)
  local at, size = nil, size_of_payer(hold, HOLD_PAYER)
  levels, tokens, at = read('>Bd', hold, HOLD_PAYER + size)
  parts = sub(hold, at)
  return sub(hold, HOLD_PAYER, HOLD_PAYER + size - 1), amount, lease_until
end

local function read_settlement_of_chain(settlement, at, charged)
  local size = size_of_payer(settlement, SETTLED_PAYER)
  billed_at, parts = at, sub(settlement, SETTLED_PAYER + size)
  return sub(settlement, SETTLED_PAYER, SETTLED_PAYER + size - 1), charged, sub(settlement, SETTLED_BILL, SETTLED_PAYER - 1)
end

