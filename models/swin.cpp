// Swin transformer (Liu et al., "Swin transformer: hierarchical vision transformer using shifted windows"): attention
// within square windows of an image of tokens, which every second block shifts by half a window; a bias for each
// relative position; between stages, four neighbours become one token of twice the channels. Parameters are named as in
// torchvision: features.0.0 (patches), features.0.2 (their norm), features.1.0.norm1, .attn.qkv, .attn.proj,
// .attn.relative_position_bias_table, .norm2, .mlp.0, .mlp.3, .., features.2.norm, features.2.reduction, .., norm,
// head. Virtual shards cut heads and hidden channels of the perceptron.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "models/kinds.h"
#include "models/relative_position.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"
#include "nn/sharded_linear.h"
#include "tensor/graph.h"

namespace elinvar {

namespace {

struct SwinOptions {
  int64_t patch = 4, channels = 96, window = 7;
  std::vector<int64_t> blocks = {2, 2, 6, 2}, heads = {3, 6, 12, 24};  // per stage
  double depth_drop = 0.2;                                             // block b of n has b / (n - 1) of it
  int shards = 1;                                                      // virtual shards, at most the heads of a stage
};

// Moves the first `n` of dimension `dim` to its end.
Var rolled(const Var& x, int dim, int64_t n) {
  if (n == 0) return x;
  const std::vector<Var> parts = split(x, {n, x.dim(dim) - n}, dim);
  return concat({parts[1], parts[0]}, dim);
}

// The windows of images of h x w tokens. Images are padded with zeros to whole windows. Shifted windows also cover the
// first half of a window after the last; tokens from opposite edges do not see each other.
struct Windows {
  int64_t h, w, size, rows, columns, shift_h, shift_w;  // rows and columns of windows
  Tensor relative;                                      // relative_positions(size)
  Tensor mask;  // (windows, 1, tokens, tokens): what is added to scores; undefined without a shift

  Windows(int64_t height, int64_t width, int64_t window, bool shifted)
      : h(height),
        w(width),
        size(window),
        rows((h + size - 1) / size),
        columns((w + size - 1) / size),
        shift_h(shifted && rows > 1 ? size / 2 : 0),
        shift_w(shifted && columns > 1 ? size / 2 : 0),
        relative(relative_positions(size)) {
    if (shift_h > 0 || shift_w > 0) make_mask();
  }
  int64_t count() const { return rows * columns; }
  int64_t tokens() const { return size * size; }

  // (B, h, w, C) -> (B * windows, tokens, C), and back.
  Var cut(const Var& images) const {
    Var x = images;
    if (rows * size > h || columns * size > w) x = pad(x, {0, 0, 0, 0}, {0, rows * size - h, columns * size - w, 0});
    x = rolled(rolled(x, 1, shift_h), 2, shift_w);
    const int64_t B = x.dim(0), C = x.dim(3);
    return reshape(permute(reshape(x, {B, rows, size, columns, size, C}), {0, 1, 3, 2, 4, 5}),
                   {B * count(), tokens(), C});
  }
  Var joined(const Var& windows) const {
    const int64_t B = windows.dim(0) / count(), C = windows.dim(2);
    Var x = reshape(permute(reshape(windows, {B, rows, columns, size, size, C}), {0, 1, 3, 2, 4, 5}),
                    {B, rows * size, columns * size, C});
    x = rolled(rolled(x, 1, (rows * size - shift_h) % (rows * size)), 2, (columns * size - shift_w) % (columns * size));
    if (rows * size > h) x = slice(x, 1, 0, h);
    return columns * size > w ? slice(x, 2, 0, w) : x;
  }

 private:
  // Where a token of a shifted image comes from: 0, or in the last window 1 before the edge and 2 after it.
  int64_t region(int64_t at, int64_t windows, int64_t shift) const {
    if (shift == 0 || at < (windows - 1) * size) return 0;
    return at < windows * size - shift ? 1 : 2;
  }
  void make_mask() {
    constexpr float kUnseen = -100.0f;  // as in torchvision
    mask = Tensor::zeros({count(), 1, tokens(), tokens()});
    float* next = mask.data<float>();
    for (int64_t window = 0; window < count(); ++window) {
      const auto region_of = [&](int64_t token) {
        const int64_t y = window / columns * size + token / size, x = window % columns * size + token % size;
        return 3 * region(y, rows, shift_h) + region(x, columns, shift_w);
      };
      for (int64_t i = 0; i < tokens(); ++i)
        for (int64_t j = 0; j < tokens(); ++j) *next++ = region_of(i) == region_of(j) ? 0.0f : kUnseen;
    }
  }
};

LinearInit swin_linear(bool bias = true) {
  return {.bias = bias, .weight = init::normal(0.02), .bias_values = init::constant(0.0)};
}

struct SwinBlock {
  LayerNorm norm1, norm2;
  std::vector<Var> tables;  // one per shard: a bias for each relative position and head
  std::vector<Linear> qkv, up;
  RowParallelLinear proj, down;
  Cut heads;
  Windows windows;
  StochasticDepth depth;

  SwinBlock(const Scope& s, int64_t channels, const Cut& cut, const Windows& w, double drop)
      : heads(cut), windows(w), depth{drop} {
    const Scope attention = s / "attn", mlp = s / "mlp";
    const Cut of_qkv{.shards = cut.shards, .things = cut.things, .groups = 3};
    const Cut hidden{.shards = cut.shards, .things = 4 * channels};
    const int64_t offsets = 2 * windows.size - 1;
    norm1 = LayerNorm(s / "norm1", channels);
    tables = attention.shards("relative_position_bias_table", {offsets * offsets, cut.things}, init::normal(0.02),
                              cut.along(1));
    qkv = column_parallel_linear(attention / "qkv", channels, 3 * channels, swin_linear(), of_qkv);
    proj = RowParallelLinear(attention / "proj", channels, channels, swin_linear(), heads);
    norm2 = LayerNorm(s / "norm2", channels);
    up = column_parallel_linear(mlp / 0, channels, 4 * channels, swin_linear(), hidden);
    down = RowParallelLinear(mlp / 3, 4 * channels, channels, swin_linear(), hidden);
  }

  // x (windows of all images, tokens, C) -> (.., tokens, channels of the shard's heads)
  Var attend(const Var& x, size_t shard) const {
    const int64_t M = x.dim(0), T = x.dim(1), count = tables[shard].dim(1);
    const Var all = qkv[shard](x);
    const int64_t width = all.dim(2) / 3;
    const std::vector<Var> parts = split(all, {width, width, width}, -1);
    const auto by_head = [&](const Var& y) { return permute(reshape(y, {M, T, count, width / count}), {0, 2, 1, 3}); };
    const Precision precision = product_precision();  // exact products of many small matrices would run one by one
    const PrecisionScope in_windows(precision == Precision::exact ? Precision::portable : precision);
    const double scale = 1.0 / std::sqrt(static_cast<double>(width / count));
    Var scores = matmul(by_head(parts[0]) * scale, transpose(by_head(parts[1]), -1, -2));
    // Constants must be known as such to work that is recorded (tensor/graph.h).
    const Tensor pairs = derived({}, [relative = windows.relative](auto) { return std::vector{relative}; })[0];
    scores = scores + permute(reshape(embedding(tables[shard], pairs), {T, T, count}), {2, 0, 1});
    if (windows.mask.defined()) {
      const Tensor in_graph = graph_constant(windows.mask, x.value().device());
      const Tensor mask = in_graph.defined() ? in_graph : windows.mask.to(x.value().device());
      scores = reshape(reshape(scores, {-1, windows.count(), count, T, T}) + mask, {M, count, T, T});
    }
    return reshape(permute(matmul(softmax(scores), by_head(parts[2])), {0, 2, 1, 3}), {M, T, width});
  }

  Residual operator()(Residual x, Context& context) const {
    const auto attention = [&](const Var& y, size_t s) { return attend(y, s); };
    const auto perceptron = [&](const Var& y, size_t s) { return gelu(up[s](y)); };
    x += depth(windows.joined(proj(windows.cut(norm1(x)), context, attention)), context);
    x += depth(down(norm2(x), context, perceptron), context);
    return x;
  }
};

// (B, h, w, C) -> (B, h / 2, w / 2, 2 C), rounded up: padded with zeros.
struct PatchMerging {
  LayerNorm norm;
  Linear reduction;

  PatchMerging(const Scope& s, int64_t channels)
      : norm(s / "norm", 4 * channels), reduction(s / "reduction", 4 * channels, 2 * channels, swin_linear(false)) {}

  Var operator()(Var x, Context&) const {
    const int64_t B = x.dim(0), h = (x.dim(1) + 1) / 2, w = (x.dim(2) + 1) / 2, C = x.dim(3);
    if (2 * h > x.dim(1) || 2 * w > x.dim(2)) x = pad(x, {0, 0, 0, 0}, {0, 2 * h - x.dim(1), 2 * w - x.dim(2), 0});
    return reduction(norm(reshape(permute(reshape(x, {B, h, 2, w, 2, C}), {0, 1, 3, 4, 2, 5}), {B, h, w, 4 * C})));
  }
};

// Linear weights and biases of relative positions start from N(0, 0.02^2), linear biases from zero, the rest from
// PyTorch's defaults.
class Swin : public SegmentedNetwork {
 public:
  Swin(const SwinOptions& o, const InputInfo& input, uint64_t seed) {
    const Scope scope(parameters, seed), features = scope / "features";
    int64_t h = input.sample[0] / o.patch, w = input.sample[1] / o.patch, channels = o.channels;
    patches_ = Conv2d(features / 0 / 0, input.sample[2], channels, {o.patch, o.patch}, {.stride = {o.patch, o.patch}});
    patch_norm_ = LayerNorm(features / 0 / 2, channels);
    add_segment("features.0", [this](const Residual& x, Context&) { return patch_norm_(patches_(x)); });
    const auto all = static_cast<double>(std::accumulate(o.blocks.begin(), o.blocks.end(), int64_t{0}));
    for (size_t stage = 0; stage < o.blocks.size(); ++stage) {
      const auto place = static_cast<int64_t>(2 * stage + 1);
      const Cut heads{.shards = o.shards, .things = o.heads[stage]};
      const Windows plain(h, w, o.window, false), shifted(h, w, o.window, true);
      for (int64_t b = 0; b < o.blocks[stage]; ++b) {
        const double drop = o.depth_drop * static_cast<double>(blocks_.size()) / std::max(1.0, all - 1.0);
        blocks_.emplace_back(features / place / b, channels, heads, b % 2 == 0 ? plain : shifted, drop);
        const auto run = [this, i = blocks_.size() - 1](const Residual& x, Context& c) {
          return run_block(blocks_[i], x, c);
        };
        add_segment(fmt::format("features.{}.{}", place, b), run);
      }
      if (stage + 1 == o.blocks.size()) break;
      mergings_.emplace_back(features / (place + 1), channels);
      add_segment(fmt::format("features.{}", place + 1), [this, stage](const Residual& x, Context& c) {
        return run_block<PatchMerging, Var>(mergings_[stage], x, c);
      });
      h = (h + 1) / 2, w = (w + 1) / 2, channels *= 2;
    }
    norm_ = LayerNorm(scope / "norm", channels);
    head_ = Linear(scope / "head", channels, input.classes, swin_linear());
    add_head();
  }

  ShardedLogits head(Residual x, Context&) const override { return {.parts = {head_(global_avg_pool(norm_(x)))}}; }

 private:
  Conv2d patches_;
  LayerNorm patch_norm_, norm_;
  std::vector<SwinBlock> blocks_;
  std::vector<PatchMerging> mergings_;
  Linear head_;
};

// The settings, whose defaults are the kind's.
std::unique_ptr<Network> configured_swin(SwinOptions o, Settings& s, const InputInfo& input, uint64_t seed) {
  require_images(s, input);
  o.patch = s.integer("patch", o.patch, 1, 1024);
  o.channels = s.integer("channels", o.channels);
  o.window = s.integer("window", o.window, 1, 32);
  o.blocks = s.integers("blocks", o.blocks, 1, kMostBlocks);
  o.heads = s.integers("heads", o.heads);
  o.depth_drop = s.real("stochastic_depth", o.depth_drop, 0.0, 0.99);
  const int64_t side = std::min(input.sample[0], input.sample[1]);
  s.require(side >= o.patch, "patch", "= {} is more than a side of images of {} x {} pixels", o.patch, input.sample[0],
            input.sample[1]);
  s.require(!o.blocks.empty() && o.blocks.size() <= 8 && o.heads.size() == o.blocks.size(), "heads",
            "and blocks must be of one length, a number for each of one to eight stages");
  s.require(std::accumulate(o.blocks.begin(), o.blocks.end(), int64_t{0}) <= kMostBlocks, "blocks",
            "must be at most {} altogether", kMostBlocks);
  for (size_t stage = 0; stage < o.heads.size(); ++stage)
    s.require((o.channels << stage) % o.heads[stage] == 0, "heads", "has {}, which does not divide {} channels",
              o.heads[stage], o.channels << stage);
  o.shards = virtual_shards(s, {{"the heads of a stage", std::ranges::min(o.heads)}});
  return std::make_unique<Swin>(o, input, seed);
}

}  // namespace

std::vector<ModelKind> swin_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, const SwinOptions& o) {
    kinds.push_back(
        {name, [o](Settings& s, const InputInfo& input, uint64_t seed) { return configured_swin(o, s, input, seed); }});
  };
  add("swin_t", {});
  add("swin_s", {.blocks = {2, 2, 18, 2}, .depth_drop = 0.3});
  add("swin_b", {.channels = 128, .blocks = {2, 2, 18, 2}, .heads = {4, 8, 16, 32}, .depth_drop = 0.5});
  return kinds;
}

}  // namespace elinvar
