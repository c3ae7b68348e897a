-- Entries of an event in the index of events: the bytes of the event's key and of its group, each with the event's number.
-- Follows from the event's fields in the stream, so that an event that is dropped leaves the index as it came.
local function index_entries(number, fields)
  local name, record, ids, entries = fields[#fields - 1], fields[#fields], {}, {}
  if name == 'threshold' then
    -- As `ledger/thresholds.lua` writes it: of a key with its group, of a group, or of the account.
    if string.byte(record) < 3 then ids = { string.sub(record, 28, 43), string.sub(record, 44) } end
  else
    local is_read, event = pcall(cjson.decode, record)
    for n, id in ipairs(is_read and { event.key_id, event.group_id } or {}) do
      local digits = string.match(tostring(id), '_(%x+)$') or ''
      ids[n] = string.gsub(digits, '%x%x', function(hex) return string.char(tonumber(hex, 16)) end)
    end
  end
  for _, id in ipairs(ids) do
    if #id == 16 then entries[#entries + 1] = id .. struct.pack('>I6', number) end
  end
  return entries
end

