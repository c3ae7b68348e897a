-- Costs to the operator by model, and all sums by group, of the day. `write.lua` adds up the other sums by model.

local GROUP_SPEND = KEYS[#KEYS - 5]

-- Changes of the costs by model: costs to the operator, and charges whose cost is known.
local costs = {}

-- The groups of the counters, and the sums of each: requests, tokens, charges, and costs as above.
local summed, group_sums = {}, {}

local function read_group_sums()
  for _, counter in ipairs(counters) do
    local group = groups_of(counter)
    if group and not group_sums[group] then summed[#summed + 1], group_sums[group] = group, { 0, 0, 0, 0, 0 } end
  end
  if #summed == 0 then return end
  local found = call('HMGET', GROUP_SPEND, unpack(summed))
  for n, group in ipairs(summed) do
    if found[n] then group_sums[group] = { read(COUNTS, found[n]) } end
  end
end

-- Adds the changes of a counter.
local function count_margin(counter, model, sums)
  local cost, known = 0, 0
  if further[counter] then cost, known = further[counter][1], further[counter][3] end
  if cost ~= 0 or known ~= 0 then
    local of_model = costs[model] or { 0, 0 }
    costs[model] = { of_model[1] + cost, of_model[2] + known }
  end
  local group = groups_of(counter)
  if group then
    local more = { sums[1], sums[2] + sums[4], sums[5], cost, known }
    for n = 1, 5 do group_sums[group][n] = min(group_sums[group][n] + more[n], COUNTED) end
  end
end

local function write_margins(spend)
  for model, sums in pairs(costs) do
    call('HINCRBY', spend, model .. '\0c', sums[1])
    call('HINCRBY', spend, model .. '\0k', sums[2])
  end
  local changed = {}
  for group, sums in pairs(group_sums) do
    changed[#changed + 1], changed[#changed + 2] = group, pack(COUNTS, unpack(sums, 1, 5))
  end
  if #changed > 0 then call('HSET', GROUP_SPEND, unpack(changed)) end
end
