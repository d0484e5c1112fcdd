#pragma once
// VGG with batch norm (Simonyan and Zisserman, "Very deep convolutional networks"). Parameters are named as in
// torchvision: features.<i> counts convolutions, batch norms, ReLUs and poolings; classifier.<i> counts linear layers,
// ReLUs and dropouts. Images being (H, W, C), the first linear layer reads features in the order (h, w, c).
#include <memory>

#include "models/input_info.h"
#include "nn/network.h"

namespace elinvar {

struct VggOptions {
  int depth = 16;          // 11, 13, 16 or 19
  bool conv_bias = false;  // torchvision's have one, which batch norm makes useless
  // imagenet: average over 7x7 cells, then 4096, 4096 and the classes; cifar: one linear layer.
  enum class Head { imagenet, cifar } head = Head::imagenet;
  double dropout = 0.5;  // of the imagenet head
};

// Convolutions start from init::kaiming_normal, linear layers from N(0, 0.01^2) with zero bias.
std::unique_ptr<Network> vgg(const VggOptions& options, const InputInfo& input, uint64_t seed);

}  // namespace elinvar
