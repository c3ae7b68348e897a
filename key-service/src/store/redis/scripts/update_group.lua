-- Changes a group; an archival is such a change. Returns 'changed', 'archived', or 'stale' where a revision has changed
-- since; nothing where the group does not exist.
--
-- KEYS  the account, the group; where the group is moved, the parent before and the parent after (the account: none)
-- ARGV  the group's field; now; the revisions of the group and of the account's groups that the caller has seen (empty:
--       any); the limit and the time of the archival as doubles (empty: unchanged), parent and bounds, as at the end of a
--       record; then names and values of changed texts
local record = call('HGET', KEYS[1], ARGV[1])
if not record then return false end
local group = read_group(ARGV[1], record)
if group.archived_at < NEVER then return 'archived' end
if ARGV[3] ~= '' and (call('HGET', KEYS[2], 'revision') or '0') ~= ARGV[3] then return 'stale' end
if ARGV[4] ~= '' and (call('HGET', KEYS[1], 'groups') or '0') ~= ARGV[4] then return 'stale' end
if ARGV[5] ~= '' then group.limit = read('>d', ARGV[5]) end
if ARGV[6] ~= '' then group.archived_at = read('>d', ARGV[6]) end
if ARGV[7] then new_rest(group, ARGV[7], tonumber(ARGV[2])) end
call('HSET', KEYS[1], ARGV[1], write_group(group))
call('HINCRBY', KEYS[2], 'revision', '1')
if KEYS[3] then
  if KEYS[3] ~= KEYS[1] then call('HINCRBY', KEYS[3], 'children', '-1') end
  if KEYS[4] ~= KEYS[1] then call('HINCRBY', KEYS[4], 'children', '1') end
end
if KEYS[3] or ARGV[6] ~= '' then call('HINCRBY', KEYS[1], 'groups', '1') end
if ARGV[8] then call('HSET', KEYS[2], unpack(ARGV, 8)) end
write_event()
return 'changed'
