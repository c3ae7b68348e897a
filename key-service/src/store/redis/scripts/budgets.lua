-- Groups of keys, and bounds of keys and groups, as `../records.rs` and `records/budgets.rs` have them. Scripts that read
-- budgets begin with this part, after `key`.

local function read_rate(record, at)
  local per_minute, taken, since, after = read('>ddd', record, at)
  return { per_minute = per_minute, taken = taken, at = since, taken_now = false }, after
end

local function read_bounds(record, at)
  local flags, windows, in_flight
  flags, windows, in_flight, at = read('>BBd', record, at)
  local bounds = { windows = {}, in_flight = in_flight, requests = false, tokens = false, max_in_flight = false, models = false }
  for n = 1, windows do
    local per, amount, start, used
    per, amount, start, used, at = read('>Bddd', record, at)
    bounds.windows[n] = { per = per, amount = amount, start = start, used = used, used_before = false }
  end
  if flags % 2 >= 1 then bounds.requests, at = read_rate(record, at) end
  if flags % 4 >= 2 then bounds.tokens, at = read_rate(record, at) end
  if flags % 8 >= 4 then bounds.max_in_flight, at = read('>d', record, at) end
  if flags >= 8 then bounds.models = sub(record, at) end
  return bounds
end

local function write_rate(rate) return rate and pack('>ddd', rate.per_minute, rate.taken, rate.at) or '' end

local function write_bounds(bounds)
  local flags = (bounds.requests and 1 or 0) + (bounds.tokens and 2 or 0) + (bounds.max_in_flight and 4 or 0)
    + (bounds.models and 8 or 0)
  local parts = { pack('>BBd', flags, #bounds.windows, bounds.in_flight) }
  for n, window in ipairs(bounds.windows) do
    parts[n + 1] = pack('>Bddd', window.per, window.amount, window.start, window.used)
  end
  return table.concat(parts) .. write_rate(bounds.requests) .. write_rate(bounds.tokens)
    .. (bounds.max_in_flight and pack('>d', bounds.max_in_flight) or '') .. (bounds.models or '')
end

-- Reads what follows the numbers of a budget: a key's group or a group's parent, a key's rotation, then bounds. A rotation
-- stays packed: the number of the current credential, and the end of the grace.
local function read_rest(budget, record, at)
  if #record < at then return end
  local flags = read('>B', record, at)
  at = at + 1
  if flags % 2 >= 1 then budget.group, at = sub(record, at, at + 15), at + 16 end
  if flags >= 4 then budget.rotation, at = sub(record, at, at + 15), at + 16 end
  if flags % 4 >= 2 then budget.bounds = read_bounds(record, at) end
end

local function write_rest(budget)
  local group, rotation, bounds = budget.group, budget.rotation, budget.bounds
  if not group and not rotation and not bounds then return '' end
  return pack('>B', (group and 1 or 0) + (bounds and 2 or 0) + (rotation and 4 or 0)) .. (group or '') .. (rotation or '')
    .. (bounds and write_bounds(bounds) or '')
end

-- A group's `group` is its parent.
local function read_group(id, record)
  local limit, high, low, held, archived_at = read(GROUP, record)
  local group = {
    id = id, limit = limit, high = high, low = low, used = high * CARRY + low, held = held, archived_at = archived_at,
    used_before = high * CARRY + low, group = false, bounds = false, changed = false,
  }
  read_rest(group, record, GROUP_SIZE + 1)
  return group
end

local function write_group(group)
  return pack(GROUP, group.limit, group.high, group.low, group.held, group.archived_at) .. write_rest(group)
end

-- Units missing from a bucket at this time, which is the same for all of a script. A clock that steps back refills
-- nothing.
local function taken_of(rate, now)
  local taken = rate.taken_now
  if not taken then
    taken = math.max(rate.taken - math.max(now - rate.at, 0) * rate.per_minute, 0)
    rate.taken_now = taken
  end
  return taken
end

