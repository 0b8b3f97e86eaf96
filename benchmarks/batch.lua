-- decisions for one of 10,000 users, one per request or BATCH of them; with REWARDS, then their rewards
-- ARMS: the same arms in every decision, "other": other arms in every decision, "common": arms once per batch
local f = io.open(os.getenv("PAYLOAD"), "rb"); local arms = f:read("*a"); f:close()
local hdr = {["Content-Type"] = "application/json"}
local size, kind = tonumber(os.getenv("BATCH") or "1"), os.getenv("ARMS")
local rewards, users = os.getenv("REWARDS") == "1", tonumber(os.getenv("USERS") or "10000")
local ids, orders = {}, {arms}
math.randomseed(tonumber(os.getenv("SEED") or "1"))
if kind == "other" then -- 1,000 orders of the arms
  local each = {}
  for one in arms:gmatch("%b{}") do each[#each + 1] = one end
  for n = 1, 1000 do
    for i = #each, 2, -1 do local j = math.random(i); each[i], each[j] = each[j], each[i] end
    orders[n] = "[" .. table.concat(each, ",") .. "]"
  end
end
local decision = function()
  local user = '{"user":"u-' .. math.random(users) .. '"'
  return kind == "common" and user .. "}" or user .. ',"arms":' .. orders[math.random(#orders)] .. "}"
end
local reward = function() return '{"decision_id":"' .. table.remove(ids) .. '","reward":1.0}' end
local make = function(element)
  local made = {}
  for i = 1, size do made[i] = element() end
  return table.concat(made, ",")
end
request = function()
  if #ids >= size then
    if size == 1 then return wrk.format("POST", "/v1/rewards", hdr, reward()) end
    return wrk.format("POST", "/v1/rewards:batch", hdr, '{"rewards":[' .. make(reward) .. "]}")
  end
  if size == 1 then return wrk.format("POST", "/v1/decisions", hdr, decision()) end
  local before = kind == "common" and '{"arms":' .. arms .. ',"decisions":[' or '{"decisions":['
  return wrk.format("POST", "/v1/decisions:batch", hdr, before .. make(decision) .. "]}")
end
response = rewards and function(status, headers, body)
  for id in body:gmatch('"decision_id":"(%x+)","arm"') do ids[#ids + 1] = id end
end
