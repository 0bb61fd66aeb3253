-- wrk script: each request submits a job with a key of its own; ids that were acknowledged go to the file $ACKNOWLEDGED.
local count, refused = 0, 0
local run = os.getenv("RUN")
local body = os.getenv("BODY")
local file = io.open(os.getenv("ACKNOWLEDGED"), "a")
local headers = {["Authorization"] = "Bearer " .. os.getenv("TOKEN"), ["Content-Type"] = "application/json"}

function request()
  count = count + 1
  headers["Idempotency-Key"] = run .. "-" .. count
  return wrk.format("POST", "/v1/jobs", headers, body)
end

function response(status, answered, _)
  if status == 201 then
    file:write((answered["Location"] or answered["location"]):match("[^/]+$"), "\n")
  else
    refused = refused + 1
  end
end
