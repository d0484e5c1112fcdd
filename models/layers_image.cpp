// Layers on images (H, W, C): conv2d, conv_transpose2d, max_pool, avg_pool, adaptive_avg_pool, global_avg_pool,
// upsample.
#include "models/layer.h"
#include "models/weight_init.h"
#include "nn/conv.h"

namespace elinvar {

namespace {

Extent2 extent(Settings& s, const char* name, Extent2 otherwise, int64_t least = 1) {
  const std::array<int64_t, 2> pair = s.extent(name, {otherwise.h, otherwise.w}, least);
  return {pair[0], pair[1]};
}

// The extent of one side of the image after a window has passed over it.
int64_t side(const Settings& s, int64_t in, int64_t window, int64_t stride, int64_t padding) {
  s.require(in + 2 * padding >= window, "kernel", "spans {}, which does not fit an image side of {} with padding {}",
            window, in, padding);
  return (in + 2 * padding - window) / stride + 1;
}

Layer build_conv2d(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 3, "an image (H, W, C)");
  const int64_t in = flow.shape[2], out = s.integer("out", std::nullopt);
  const Extent2 kernel = extent(s, "kernel", {3, 3}), stride = extent(s, "stride", {1, 1});
  const Extent2 dilation = extent(s, "dilation", {1, 1});
  // By default, an odd kernel at stride 1 keeps the size of the image.
  const Extent2 padding = extent(s, "padding", {dilation.h * (kernel.h - 1) / 2, dilation.w * (kernel.w - 1) / 2}, 0);
  const int64_t groups = s.integer("groups", 1);
  s.require(in % groups == 0 && out % groups == 0, "groups", "= {} must divide {} channels in and {} out", groups, in,
            out);
  const Conv2d layer(scope, in, out, kernel, {stride, padding, dilation, groups},
                     {.bias = s.boolean("bias", true), .weight = weight_init(s, init::fan_in_uniform())});
  flow.shape = {side(s, flow.shape[0], dilation.h * (kernel.h - 1) + 1, stride.h, padding.h),
                side(s, flow.shape[1], dilation.w * (kernel.w - 1) + 1, stride.w, padding.w), out};
  return [layer](const Var& x, Context&) { return layer(x); };
}

Layer build_conv_transpose2d(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 3, "an image (H, W, C)");
  const int64_t in = flow.shape[2], out = s.integer("out", std::nullopt);
  const Extent2 kernel = extent(s, "kernel", {2, 2}), stride = extent(s, "stride", kernel);
  const Extent2 padding = extent(s, "padding", {0, 0}, 0);
  s.require(2 * padding.h < kernel.h && 2 * padding.w < kernel.w, "padding", "must be less than half of the kernel");
  const ConvTranspose2d layer(scope, in, out, kernel, {.stride = stride, .padding = padding},
                              {.bias = s.boolean("bias", true), .weight = weight_init(s, init::fan_in_uniform())});
  const auto longer = [&](int64_t side_in, int64_t window, int64_t step, int64_t pad) {
    return (side_in - 1) * step + window - 2 * pad;
  };
  flow.shape = {longer(flow.shape[0], kernel.h, stride.h, padding.h),
                longer(flow.shape[1], kernel.w, stride.w, padding.w), out};
  return [layer](const Var& x, Context&) { return layer(x); };
}

Layer build_pool(Settings& s, Flow& flow, bool max) {
  require_flow(s, flow, 3, "an image (H, W, C)");
  Pool2dOptions o;
  o.kernel = extent(s, "kernel", {2, 2});
  o.stride = extent(s, "stride", o.kernel);
  o.padding = extent(s, "padding", {0, 0}, 0);
  s.require(2 * o.padding.h <= o.kernel.h && 2 * o.padding.w <= o.kernel.w, "padding",
            "must not exceed half of the window of a pooling");
  if (!max) o.count_include_pad = s.boolean("count_include_pad", true);
  flow.shape = {side(s, flow.shape[0], o.kernel.h, o.stride.h, o.padding.h),
                side(s, flow.shape[1], o.kernel.w, o.stride.w, o.padding.w), flow.shape[2]};
  return [o, max](const Var& x, Context&) { return max ? max_pool2d(x, o) : avg_pool2d(x, o); };
}

Layer build_adaptive(Settings& s, const Scope&, Flow& flow) {
  require_flow(s, flow, 3, "an image (H, W, C)");
  const Extent2 out = extent(s, "out", {1, 1});
  flow.shape = {out.h, out.w, flow.shape[2]};
  return [out](const Var& x, Context&) { return adaptive_avg_pool2d(x, out); };
}

Layer build_global(Settings& s, const Scope&, Flow& flow) {
  require_flow(s, flow, 3, "an image (H, W, C)");
  flow.shape = {flow.shape[2]};
  return [](const Var& x, Context&) { return global_avg_pool(x); };
}

Layer build_upsample(Settings& s, const Scope&, Flow& flow) {
  require_flow(s, flow, 3, "an image (H, W, C)");
  const Extent2 factor = extent(s, "factor", {2, 2});
  const bool linear = s.choice("mode", "nearest", {"nearest", "bilinear"}) == "bilinear";
  const Extent2 out{flow.shape[0] * factor.h, flow.shape[1] * factor.w};
  flow.shape = {out.h, out.w, flow.shape[2]};
  return
      [out, linear](const Var& x, Context&) { return linear ? upsample_bilinear(x, out) : upsample_nearest(x, out); };
}

}  // namespace

std::vector<LayerKind> image_layers() {
  return {{"conv2d", build_conv2d},
          {"conv_transpose2d", build_conv_transpose2d},
          {"max_pool", [](Settings& s, const Scope&, Flow& flow) { return build_pool(s, flow, true); }},
          {"avg_pool", [](Settings& s, const Scope&, Flow& flow) { return build_pool(s, flow, false); }},
          {"adaptive_avg_pool", build_adaptive},
          {"global_avg_pool", build_global},
          {"upsample", build_upsample}};
}

}  // namespace elinvar
