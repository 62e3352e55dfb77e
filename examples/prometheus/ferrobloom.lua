-- The module's counters for redis_exporter, which runs this with its option `-script`
-- and exports the pairs as redis_script_values{key="bf_bloom_keys"} and so on.
local values = {}
for name, value in string.gmatch(redis.call('INFO', 'modules'), '(bf_[%w_]+):(%d+)[\r\n]') do
  values[#values + 1] = name
  values[#values + 1] = value
end
return values
