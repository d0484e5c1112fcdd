#pragma once
// Residual networks (He et al., "Deep residual learning for image recognition"; the stride of a bottleneck is in its
// 3x3 convolution). Parameters are named as in torchvision: conv1, bn1, layer1.0.conv1, layer1.0.bn1, ...,
// layer2.0.downsample.0 (convolution), layer2.0.downsample.1 (batch norm), fc.
#include <memory>
#include <vector>

#include "models/input_info.h"
#include "nn/network.h"

namespace elinvar {

struct ResNetOptions {
  std::vector<int64_t> blocks = {2, 2, 2, 2};                 // a stage; all but the first stage halve the image
  std::vector<int64_t> widths = {64, 128, 256, 512};          // of the 3x3 convolutions of a stage
  bool bottleneck = false;                                    // blocks of 1x1, 3x3, 1x1 with four times the width out
  enum class Stem { imagenet, cifar } stem = Stem::imagenet;  // 7x7/2 and a 3x3/2 max-pool, or 3x3
  // Where a block changes shape, its shortcut is a strided 1x1 convolution with batch norm (option B of the paper),
  // or every second pixel with zeros for the new channels, half before and half after (option A).
  enum class Shortcut { projection, pad } shortcut = Shortcut::projection;
  bool zero_init_residual = false;  // the last batch norm of a block starts with weight 0, so the block as identity
};

// Convolutions start from init::kaiming_normal, the last layer from PyTorch's default.
std::unique_ptr<Network> resnet(const ResNetOptions& options, const InputInfo& input, uint64_t seed);

}  // namespace elinvar
