-- decisions alone for one of 10,000 users: one per request, or BATCH of them; SHARED: the arms once per batch
local f = io.open(os.getenv("PAYLOAD"), "rb"); local arms = f:read("*a"); f:close()
local hdr = {["Content-Type"] = "application/json"}
local size = tonumber(os.getenv("BATCH") or "1")
local shared = os.getenv("SHARED") == "1"
math.randomseed(tonumber(os.getenv("SEED") or "1"))
local element = function()
  local user = '{"user":"u-' .. math.random(tonumber(os.getenv("USERS") or "10000")) .. '"'
  return shared and user .. "}" or user .. ',"arms":' .. arms .. "}"
end
request = function()
  if size == 1 then return wrk.format("POST", "/v1/decisions", hdr, element()) end
  local made = {}
  for i = 1, size do made[i] = element() end
  local before = shared and '{"arms":' .. arms .. ',"decisions":[' or '{"decisions":['
  return wrk.format("POST", "/v1/decisions:batch", hdr, before .. table.concat(made, ",") .. "]}")
end
