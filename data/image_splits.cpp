// Which images of a set belong to a split.
#include <algorithm>

#include "data/image_source.h"
#include "data/permutation.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

// Holds out `fraction` of the images, chosen by a fixed permutation; both parts keep their order.
ImageSourcePtr held_out(const ImageSourcePtr& source, double fraction, bool training) {
  const int64_t n = source->size(), held = static_cast<int64_t>(static_cast<double>(n) * fraction);
  check_setting(n == 0 || (held > 0 && held < n), "data.validation_fraction",
                "= {} of {} images leaves {} and {}; both must be more than none", fraction, n, n - held, held);
  const Permutation order(std::max<int64_t>(n, 1), key_of("data.held_out"), 0);
  std::vector<int64_t> indices;
  for (int64_t i = training ? held : 0; i < (training ? n : held); ++i) indices.push_back(order(i));
  std::sort(indices.begin(), indices.end());
  return subset(source, std::move(indices));
}

ImageSourcePtr choose(const DataConfig& config, const ImageParts& parts, Split split) {
  const ImageParts::Open& own = parts.validation ? parts.validation : parts.test;
  if (split == Split::test) {
    const ImageParts::Open& open = parts.test ? parts.test : parts.validation;
    check(open != nullptr, "[data] '{}' has no test images; split \"validation\" is held out of its training images",
          config.path);
    return open();
  }
  const bool apart = parts.apart || (config.validation_fraction == 0 && own);
  if (apart) return split == Split::train ? parts.training() : own();
  return held_out(parts.training(), config.validation_fraction == 0 ? 0.1 : config.validation_fraction,
                  split == Split::train);
}

}  // namespace

ImageSourcePtr images_of_split(const DataConfig& config, const ImageParts& parts, Split split) {
  check_setting(config.cache_mb >= 0 && config.cache_mb <= int64_t{1} << 40, "data.cache_mb",
                "must be from 0 to 2^40, got {}", config.cache_mb);
  check_setting(config.broken == "error" || config.broken == "skip", "data.broken",
                "must be \"error\" or \"skip\", got \"{}\"", config.broken);
  ImageSourcePtr source = choose(config, parts, split);
  if (source->size() == 0) fail("[data] '{}' has no images for {}", config.path, name_of(split));
  return kept_in_memory(std::move(source), config.cache_mb << 20, config.broken == "skip");
}

}  // namespace elinvar
