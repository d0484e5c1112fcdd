// Configurations, with overrides after them; and what else is said on the command line.
#include "comm/endpoint.h"
#include "elastic/chaos.h"
#include "tests/fuzz/target.h"
#include "tools/config/config.h"

namespace elinvar::test {
namespace {

const FuzzTarget kConfig("config", [](std::string_view bytes) {
  const std::string_view text = next_part(bytes);
  std::vector<std::string> overrides;
  while (!bytes.empty()) overrides.emplace_back(next_part(bytes));
  const Config config = parse_config(text, "fuzz.toml", overrides);
  const std::string written = to_toml(config);
  must(to_toml(parse_config(written, "fuzz.toml")) == written, "a configuration that is written reads back as it is");
});

const FuzzTarget kChaos("chaos", [](std::string_view bytes) { (void)parse_chaos(std::string(bytes)); });

const FuzzTarget kEndpoint("endpoint", [](std::string_view bytes) {
  const Endpoint endpoint = parse_endpoint(std::string(bytes));
  must(to_string(parse_endpoint(to_string(endpoint))) == to_string(endpoint), "an endpoint reads back as it is");
});

}  // namespace
}  // namespace elinvar::test
