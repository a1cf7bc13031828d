-- For wrk: posts the lines of a file in order, and prints the results as JSON. Arguments: the file, and the index of the first line.
local threads = {}

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

function init(args)
  bodies, good, busy, other = {}, 0, 0, 0
  for line in io.lines(args[1]) do
    bodies[#bodies + 1] = line
  end
  at = tonumber(args[2]) + number * 5003 -- threads send different lines
  wrk.headers["Content-Type"] = "application/json"
end

function request()
  at = at % #bodies + 1
  return wrk.format("POST", nil, nil, bodies[at])
end

function response(status, headers)
  if status == 200 then
    good = good + 1
  elseif status == 503 and (headers["retry-after"] or headers["Retry-After"]) then
    busy = busy + 1
  else
    other = other + 1
  end
end

function done(summary, latency)
  local good, busy, other = 0, 0, 0
  for _, thread in ipairs(threads) do
    good, busy, other = good + thread:get("good"), busy + thread:get("busy"), other + thread:get("other")
  end
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write + errors.timeout
  print(string.format(
    '{"seconds": %f, "good": %d, "busy": %d, "other": %d, "lost": %d, "p50_ms": %f, "p99_ms": %f, "max_ms": %f}',
    summary.duration / 1e6, good, busy, other, lost,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
