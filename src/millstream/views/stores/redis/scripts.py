"""What Redis does in one step, as scripts: each runs alone, whole or not at all.

    CHANGE    what a writer does: if nothing has changed since it looked, rows and notes together
    GET, RANGE, NOTES    what a reader asks, all of one moment

KEYS[1] is the hash of notes of a view. docs/formats/redis_views.md has the names and fields.
"""

# KEYS: notes, staged, rows, index, then those to remove. ARGV[1], as JSON: `expect`, fields as they
# were when the writer looked ("" for none); `put`, fields to set; `remove`, fields to delete;
# `staged`, how many entries are staged. The first write is one that a full server refuses: it
# refuses none after it, so that a script is never left half done.
CHANGE = """
local step = cjson.decode(ARGV[1])
for field, value in pairs(step.expect) do
  if (redis.call('HGET', KEYS[1], field) or '') ~= value then return 0 end
end
if redis.call('LLEN', KEYS[2]) ~= step.staged then return 0 end
for field, value in pairs(step.put) do redis.call('HSET', KEYS[1], field, value) end
for _, field in ipairs(step.remove) do redis.call('HDEL', KEYS[1], field) end
for i = 5, #KEYS do redis.call('UNLINK', KEYS[i]) end
for first = 0, step.staged - 1, 1500 do
  local part = redis.call('LRANGE', KEYS[2], first, first + 1499)
  local rows, members, gone, out = {}, {}, {}, {}
  for i = 1, #part, 3 do
    if part[i + 2] == '' then
      gone[#gone + 1] = part[i]
      out[#out + 1] = part[i + 1]
    else
      rows[#rows + 1] = part[i]
      rows[#rows + 1] = part[i + 2]
      members[#members + 1] = '0'
      members[#members + 1] = part[i + 1]
    end
  end
  if #rows > 0 then
    redis.call('HSET', KEYS[3], unpack(rows))
    redis.call('ZADD', KEYS[4], unpack(members))
  end
  if #gone > 0 then
    redis.call('HDEL', KEYS[3], unpack(gone))
    redis.call('ZREM', KEYS[4], unpack(out))
  end
end
redis.call('UNLINK', KEYS[2])
return 1
"""

# ARGV[1] is the generation, "" for the one that is served; ARGV[2] what the reader knows it by. If
# that is another one by now, it gets the notes alone, and asks again.
_READ = """
local number = ARGV[1] ~= '' and ARGV[1] or redis.call('HGET', KEYS[1], 'served') or ''
local layout = redis.call('HGET', KEYS[1], 'layout:' .. number)
if not layout then return {} end
local batch = redis.call('HGET', KEYS[1], 'generation:' .. number)
local known = number .. ':' .. redis.sha1hex(layout)
local rows, index = KEYS[1] .. ':' .. number .. ':rows', KEYS[1] .. ':' .. number .. ':index'
if known ~= ARGV[2] then return {known, batch, layout} end
"""

NOTES = _READ + "return {known, batch, layout, redis.call('HLEN', rows)}"

# ARGV from 3 on: texts of keys.
GET = (
    _READ
    + """
local found = {}
for i = 3, #ARGV do found[i - 2] = redis.call('HGET', rows, ARGV[i]) end
return {known, batch, layout, found}
"""
)

# ARGV from 3 on: least and greatest member of the index, as ZRANGEBYLEX takes them; how many, -1
# for all. A member ends with the text of its key, and four bytes: how long that is.
RANGE = (
    _READ
    + """
local found = {}
local members = redis.call('ZRANGEBYLEX', index, ARGV[3], ARGV[4], 'LIMIT', '0', ARGV[5])
for i, member in ipairs(members) do
  local a, b, c, d = string.byte(member, -4, -1)
  local length = ((a * 256 + b) * 256 + c) * 256 + d
  found[i] = redis.call('HGET', rows, string.sub(member, -4 - length, -5))
end
return {known, batch, layout, found}
"""
)
