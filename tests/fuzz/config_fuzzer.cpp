// Configurations followed by overrides, up to the network that they describe; and other command-line values.
#include "comm/endpoint.h"
#include "elastic/session/chaos.h"
#include "models/build.h"
#include "tensor/base/check.h"
#include "tests/fuzz/target.h"
#include "tools/config/config.h"
#include "tools/config/spec_toml.h"

namespace elinvar::test {
namespace {

// Makes the network's outline, which needs no memory. The configuration with defaults filled in describes the same
// network.
void outline(const Spec& model, const InputInfo& input) {
  const OutlineScope no_values;
  Spec whole, again;
  try {
    (void)build(model, input, 0, &whole);
  } catch (const UsageError&) {
    return;
  }
  (void)build(whole, input, 0, &again);
  must(model_spec_to_toml(again) == model_spec_to_toml(whole), "a network with every default is itself");
}

const FuzzTarget kConfig("config", [](std::string_view bytes) {
  const std::string_view text = next_part(bytes);
  std::vector<std::string> overrides;
  while (!bytes.empty()) overrides.emplace_back(next_part(bytes));
  const Config config = parse_config(text, "fuzz.toml", overrides);
  const std::string written = to_toml(config);
  must(to_toml(parse_config(written, "fuzz.toml")) == written, "a configuration that is written reads back as it is");
  outline(config.model, {.sample = {32, 32, 3}, .classes = 10});
  outline(config.model, {.sample = {64}, .classes = 256, .dtype = DType::i32});
});

const FuzzTarget kChaos("chaos", [](std::string_view bytes) { (void)parse_chaos(std::string(bytes)); });

const FuzzTarget kEndpoint("endpoint", [](std::string_view bytes) {
  const Endpoint endpoint = parse_endpoint(std::string(bytes));
  must(to_string(parse_endpoint(to_string(endpoint))) == to_string(endpoint), "an endpoint reads back as it is");
});

}  // namespace
}  // namespace elinvar::test
