-- Change of a budget's bounds, as `Bounds::update` in the domain. Scripts that change budgets have this part after
-- `budgets`.

-- A rate that was changed has the time of the change, and keeps what was taken until then.
local function new_rate(rate, old, now)
  if not rate or not old then return rate end
  if rate.at >= now then
    rate.taken, rate.at = taken_of(old, now), math.max(old.at, now)
  else
    rate.taken, rate.at = old.taken, old.at
  end
  return rate
end

-- The group and the bounds of a record, where the bounds keep what was used of those before.
local function new_rest(budget, rest, now)
  local old = budget.bounds or { windows = {}, in_flight = 0 }
  budget.group, budget.bounds = false, false
  read_rest(budget, rest, 1)
  local bounds = budget.bounds
  if not bounds then
    if old.in_flight == 0 then return end
    bounds = { windows = {} }
    budget.bounds = bounds
  end
  bounds.in_flight = old.in_flight
  for _, window in ipairs(bounds.windows) do
    for _, before in ipairs(old.windows) do
      if before.per == window.per then window.start, window.used = before.start, before.used end
    end
  end
  bounds.requests, bounds.tokens = new_rate(bounds.requests, old.requests, now), new_rate(bounds.tokens, old.tokens, now)
  local is_empty = #bounds.windows == 0 and not bounds.requests and not bounds.tokens and not bounds.max_in_flight
    and not bounds.models and bounds.in_flight == 0
  if is_empty then budget.bounds = false end
end

