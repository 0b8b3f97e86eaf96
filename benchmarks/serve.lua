-- each connection alternates: a decision for one of 10,000 users, then the reward of it
local f = io.open(os.getenv("PAYLOAD"), "rb"); local arms = f:read("*a"); f:close()
local hdr = {["Content-Type"] = "application/json"}
local ids = {}
math.randomseed(tonumber(os.getenv("SEED") or "1"))
request = function()
  local id = table.remove(ids)
  if id then return wrk.format("POST", "/v1/rewards", hdr, '{"decision_id":"' .. id .. '","reward":1.0}') end
  return wrk.format("POST", "/v1/decisions", hdr, '{"user":"u-' .. math.random(tonumber(os.getenv("USERS") or "10000")) .. '","arms":' .. arms .. '}')
end
response = function(status, headers, body)
  local id = body:match('"decision_id":"(%x+)","arm"')
  if id then ids[#ids + 1] = id end
end
