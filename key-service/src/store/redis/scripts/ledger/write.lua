-- Writes all changes. The counters are read before: after the first write nothing may fail any more. The journal comes
-- first: Redis refuses an entry whose number is not larger than all others.

local counters_before, after, spent = #entries > 0 and call('HMGET', COUNTERS, unpack(counters)), {}, {}
for n = 1, #counters do -- plain
  if counters_before[n] and #counters_before[n] > COUNTS_SIZE then error(NEEDS_CHAINS) end -- plain
end -- plain
read_group_sums() -- chain

if #entries > 0 then
  call('XADD', JOURNAL, 'MINID', '~', left_after(account.entries + 1, most_entries),
       written(account.entries - #entries / 2 + 1) .. '-0', 'entries', table.concat(entries))
end

local running, ended, settled = {}, {}, {}
for n = 1, generations do
  local hold, before = holds[n], holds_before[n]
  if hold and hold ~= before then
    running[#running + 1], running[#running + 2] = ARGV[BEFORE_IDS + n], hold
  elseif before and not hold then
    ended[#ended + 1] = ARGV[BEFORE_IDS + n]
  end
  if endings[n] == CAPTURED and n <= alike then
    settled[#settled + 1], settled[#settled + 2] = ARGV[BEFORE_IDS + n], settlements[n]
  elseif endings[n] then
    local captured, expired = hashes_of(n)
    local name, kept = captured, SETTLED_KEPT
    if endings[n] == EXPIRED then name, kept, account.last_expiry = expired, EXPIRED_KEPT, now end
    call('HSET', name, ARGV[BEFORE_IDS + n], settlements[n])
    call('EXPIRE', name, kept)
  end
  if endings[n] == CAPTURED and some_expired and not before then
    local _, expired = hashes_of(n)
    call('HDEL', expired, ARGV[BEFORE_IDS + n])
  end
end
if #settled > 0 then
  call('HSET', KEYS[6], unpack(settled))
  -- Within the hour, the hash has an expiry from the first settlement on.
  if hour ~= account.settled_hour or now < hour * HOUR - CLOCK_LEAD or now >= (hour + 1) * HOUR then
    call('EXPIRE', KEYS[6], SETTLED_KEPT)
    account.settled_hour = hour
  end
end

local changed, spenders = {}, {}
if account.changed then
  changed = { 'funds', pack(FUNDS, account.credit, account.held, account.tick, account.entries,
                            account.last_expiry, account.settled_hour) }
  if account.deposited_at >= 0 then
    changed[2] = changed[2] .. pack(LAST_DEPOSIT, account.deposited, account.deposited_at)
  end
end
for n = 1, named do
  local key = keys[n]
  if key and key.changed then
    changed[#changed + 1], changed[#changed + 2] = key.id, write_key(key)
    if key.rotation then changed[#changed] = changed[#changed] .. '\4' .. key.rotation end -- plain
    bill_windows(key) -- chain
    changed[#changed] = changed[#changed] .. write_rest(key) -- chain
    if key.used ~= key.used_before then spenders[#spenders + 1], spenders[#spenders + 2] = key.used, key.id end
  end
end
write_groups(changed) -- chain
if #changed > 0 then call('HSET', ACCOUNT, unpack(changed)) end
if #running > 0 then call('HSET', HOLDS, unpack(running)) end
if #ended > 0 then call('HDEL', HOLDS, unpack(ended)) end
for _, event in ipairs(told) do
  local number = append_event(unpack(event))
  if event[2] == 'once' then call('HSET', NUMBERS, event[3], number) end
end
for id, deposit in pairs(new_deposits) do call('HSET', DEPOSITS, id, deposit) end
if #entries == 0 then return outcomes end

for n = 1, #counters do
  local requests, prompt, cached, completion, charged = 0, 0, 0, 0, 0
  if counters_before[n] then requests, prompt, cached, completion, charged = read(COUNTS, counters_before[n]) end
  local sums = counts[counters[n]]
  after[2 * n - 1] = counters[n]
  after[2 * n] = pack(COUNTS, min(requests + sums[1], COUNTED), min(prompt + sums[2], COUNTED),
                      min(cached + sums[3], COUNTED), min(completion + sums[4], COUNTED), min(charged + sums[5], sums[6]))
  local model = sub(counters[n], 19)
  local _, length = size_of_payer(counters[n], 1) -- chain
  model = sub(model, 1, length) -- chain
  after[2 * n] = after[2 * n] .. further_counts(counters[n], counters_before[n]) -- chain
  local of_model = spent[model] or { 0, 0, 0 }
  count_margin(counters[n], model, sums) -- chain
  spent[model] = { of_model[1] + sums[5], of_model[2] + sums[1], of_model[3] + sums[2] + sums[4] }
end
if #spenders > 0 then call('ZADD', KEYS[#KEYS - 4], unpack(spenders)) end
local SPEND, new = KEYS[#KEYS - 3], call('HSET', COUNTERS, unpack(after))
for model, sums in pairs(spent) do
  call('HINCRBY', SPEND, model, sums[1])
  call('HINCRBY', SPEND, model .. '\0r', sums[2])
  call('HINCRBY', SPEND, model .. '\0t', sums[3])
end
write_margins(SPEND) -- chain
-- New counters may be the first of the day: then the spend is that of the whole day.
if new > 0 then
  if call('HLEN', COUNTERS) == new then call('HSET', SPEND, '', '3') end
  call('EXPIRE', COUNTERS, written(counters_kept))
  call('EXPIRE', SPEND, written(counters_kept))
  if #summed > 0 then call('EXPIRE', GROUP_SPEND, written(counters_kept)) end -- chain
end
return outcomes
