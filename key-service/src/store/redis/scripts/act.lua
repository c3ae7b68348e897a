-- Writes the event of an act, if there is one.
local function write_event()
  if EVENT ~= '' then append_event(EVENT_ID, 'event', EVENT) end
end

