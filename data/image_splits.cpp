// Chooses the images of a split.
#include "data/held_out.h"
#include "data/image_source.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"

namespace elinvar {
namespace {

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
  const ImageSourcePtr all = parts.training();
  if (all->size() == 0) return all;
  const double fraction = config.validation_fraction == 0 ? 0.1 : config.validation_fraction;
  return subset(all, held_out(all->size(), fraction, split == Split::train, "images"));
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
