#include "tools/bench/decode.h"

#include "models/build.h"
#include "nn/decoder.h"
#include "tensor/base/check.h"
#include "tools/peak/timing.h"
#include "tools/bench/trainer.h"

namespace elinvar::bench {
namespace {

constexpr int64_t kContext = 1024;

const std::vector<ModelCase>& decode_cases() {
  static const std::vector<ModelCase> all{gpt_case("chargpt", 6, 6, 384, kContext, 256, 1),
                                          gpt_case("gpt2", 12, 12, 768, kContext, 50257, 1)};
  return all;
}

}  // namespace

std::vector<std::string> decode_names() {
  std::vector<std::string> names;
  for (const ModelCase& c : decode_cases()) names.push_back(c.name);
  return names;
}

void run_decode(const std::string& name, int warm_up, int repeat, Report& report) {
  for (const ModelCase& c : decode_cases()) {
    if (c.name != name) continue;
    const std::unique_ptr<Network> network =
        build(c.spec, {.sample = c.sample, .classes = c.classes, .dtype = DType::i32}, 0);
    const auto l = static_cast<double>(c.layers), w = static_cast<double>(c.channels),
               weights = 12.0 * l * w * w + static_cast<double>(c.classes) * w;
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < kContext; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % c.classes));
    for (const bool cached : {true, false}) {
      Decoder decoder(*network, kContext, cached);
      for (const int64_t n : {int64_t{16}, int64_t{256}, kContext}) {
        // The same text is decoded repeatedly; with a cache only its last token is computed.
        const std::span<const int32_t> text(tokens.data(), static_cast<size_t>(n));
        const double computed = cached ? 1.0 : static_cast<double>(n), held = 2.0 * l * w * static_cast<double>(n);
        const double seconds = median_seconds(warm_up, repeat, [&] { (void)decoder.logits(text); });
        report.add(fmt::format("{}, {} tokens{}", name, n, cached ? "" : ", no cache"), seconds,
                   2.0 * computed * (weights + (cached ? held : held / 2)) / 1e9, 4.0 * (weights + held) / 1e9, 1.0,
                   "tokens");
      }
    }
  }
}

}  // namespace elinvar::bench
