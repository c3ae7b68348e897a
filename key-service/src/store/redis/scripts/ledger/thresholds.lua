-- Thresholds of money to be told, as in `domain/ledger/events.rs`: each once, by the names of budget, bound, percent, beginning
-- and amount.

-- Deposits with their events, then thresholds: id, name and numbers.
local told = {}

local tell = (settles or present[HOLD]) and function(holder, budget, bound, percent, amount, spent, start)
  local id = budget and budget.id
  if not id then
    id = string.gsub(string.match(ACCOUNT, '{acct_(%x+)}'), '%x%x', function(hex) return string.char(tonumber(hex, 16)) end)
  end
  local what = string.char(bound, percent)
  local once = id .. what .. pack('>I8I8', start, amount)
  if told[once] or call('HEXISTS', NUMBERS, once) == 1 then return end
  local group = holder == 1 and budget.group or ''
  told[once] = true
  told[#told + 1] = {
    pack('>I6', now) .. sub(id, 7, 14) .. what, 'once', once,
    'threshold', pack('>Bddd', holder, amount, spent, now) .. what .. id .. group,
  }
end

local tell_credit = (settles or present[HOLD]) and function(percent)
  local spent = left_after(account.deposited, account.credit)
  tell(3, false, 5, percent, account.deposited, spent, account.deposited_at)
end

-- Tells the bounds on money that leave too little for a hold.
local tell_refusal = present[HOLD] and function(key, refused)
  if refused == 'credit_empty' then return tell_credit(0) end
  if refused == 'limit_reached' then return tell(1, key, 0, 100, key.limit, key.used, 0) end
  if sub(refused, 1, 14) ~= 'limit_reached ' then return end -- chain
  local level = tonumber(sub(refused, 15, 15)) -- chain
  local budget, holder = ({ chain.key, chain.group, chain.parent })[level], level == 1 and 1 or 2 -- chain
  if #refused == 15 then return tell(holder, budget, 0, 100, budget.limit, budget.used, 0) end -- chain
  for at = 16, #refused, 9 do -- chain
    local per = read('>B', refused, at) -- chain
    for _, window in ipairs(budget.bounds.windows) do -- chain
      local start, billed = turned(window) -- chain
      if window.per == per then tell(holder, budget, per + 1, 100, window.amount, billed, start) end -- chain
    end -- chain
  end -- chain
end

