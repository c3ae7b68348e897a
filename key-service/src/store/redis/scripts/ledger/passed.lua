-- Tells thresholds that the commands have passed.

if settles then
  local function tell_passed(holder, budget, bound, amount, before, after, start)
    if after < amount / 2 or before >= amount then return end
    local rest = math.fmod(amount, 100)
    for _, percent in ipairs({ 50, 80, 95, 100 }) do
      local border = (amount - rest) / 100 * percent + math.ceil(rest * percent / 100)
      if before < border and after >= border then tell(holder, budget, bound, percent, amount, after, start) end
    end
  end
  local function tell_windows(holder, budget) -- chain
    bill_windows(budget) -- chain
    for _, window in ipairs(budget.bounds and budget.bounds.windows or NONE) do -- chain
      local before = window.used_before -- chain
      if before then tell_passed(holder, budget, window.per + 1, window.amount, before, window.used, window.start) end -- chain
    end -- chain
  end -- chain
  for n = 1, named do
    local key = keys[n]
    if key and key.changed then
      if key.limit < NEVER then tell_passed(1, key, 0, key.limit, key.used_before, key.used, 0) end
      tell_windows(1, key) -- chain
    end
  end
  for _, group in pairs(groups) do -- chain
    if group and group.changed then -- chain
      if group.limit < NEVER then tell_passed(2, group, 0, group.limit, group.used_before, group.used, 0) end -- chain
      tell_windows(2, group) -- chain
    end -- chain
  end -- chain
  local base = account.deposited
  local rest = math.fmod(base, 100)
  if account.credit <= base / 5 and account.credit < account.credit_before then
    for _, percent in ipairs({ 20, 5, 0 }) do
      local border = (base - rest) / 100 * percent + math.floor(rest * percent / 100)
      local has_base = percent == 0 or account.deposited_at >= 0
      if has_base and account.credit_before > border and account.credit <= border then tell_credit(percent) end
    end
  end
end
local tells = #told > 0

