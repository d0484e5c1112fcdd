#include "tools/training/op_work.h"

#include <algorithm>
#include <map>

namespace elinvar {
namespace {

class Arguments {
 public:
  explicit Arguments(const TraceValues& values) : values_(values) {}
  // Of the tensor of this name; empty: there is none.
  Shape shape(std::string_view name) const {
    for (const TraceValue& v : values_)
      if (v.name == name && v.kind != TraceValue::Kind::number && v.tensor.defined()) return v.tensor.shape();
    return {};
  }
  std::string number(std::string_view name) const {
    for (const TraceValue& v : values_)
      if (v.name == name && v.kind == TraceValue::Kind::number) return v.number;
    return {};
  }

 private:
  const TraceValues& values_;
};

double product(std::initializer_list<int64_t> extents) {
  double n = 1;
  for (const int64_t extent : extents) n *= static_cast<double>(extent);
  return n;
}

// Leading dimensions broadcast.
double matmul_flop(const Arguments& of) {
  const Shape a = of.shape("a"), b = of.shape("b");
  double flop = 2.0 * product({a[a.ndim() - 2], a[a.ndim() - 1], b[b.ndim() - 1]});
  for (int i = 3; i <= std::max(a.ndim(), b.ndim()); ++i)
    flop *= static_cast<double>(std::max(i <= a.ndim() ? a[a.ndim() - i] : 1, i <= b.ndim() ? b[b.ndim() - i] : 1));
  return flop;
}

// Each element of the output is a sum over a filter, whose first extent is that of the output's channels. The output,
// or its gradient, is images (N, H, W, C).
double convolution_flop(const Shape& images, const Shape& filters) {
  return 2.0 * static_cast<double>(images.numel()) * static_cast<double>(filters.numel()) /
         static_cast<double>(filters[0]);
}

// Of one product of queries (B, Tq, H, D) with keys (B, Tk, G, D).
double attention_product_flop(const Shape& q, int64_t tk, bool causal) {
  const auto tq = static_cast<double>(q[1]), keys = static_cast<double>(tk);
  const double pairs = causal ? tq * (keys - tq) + tq * (tq + 1) / 2 : tq * keys;
  return 2.0 * product({q[0], q[2], q[3]}) * pairs;
}

bool causal(const Arguments& of) { return of.number("causal") != "0"; }

double attention_flop(const Arguments& of) {
  return attention_product_flop(of.shape("q"), of.shape("k")[1], causal(of));
}

double self_attention_flop(const Arguments& of) {
  const Shape qkv = of.shape("qkv");
  return attention_product_flop({qkv[0], qkv[1], qkv[3], qkv[4]}, qkv[1], causal(of));
}

Shape shape_from(const std::string& text) {
  Shape shape;
  trace::parse(text, shape);
  return shape;
}

using Flop = double (*)(const Arguments&);
const std::map<std::string_view, Flop>& products() {
  static const std::map<std::string_view, Flop> all = {
      {"matmul", matmul_flop},
      {"conv2d",
       [](const Arguments& of) {
         const Shape x = of.shape("x"), w = of.shape("w");
         const auto number = [&](const char* name) { return std::stoll(of.number(std::string("options.") + name)); };
         const auto extent = [&](int image, int filter, const char* pad, const char* dilation, const char* stride) {
           return (x[image] + 2 * number(pad) - number(dilation) * (w[filter] - 1) - 1) / number(stride) + 1;
         };
         const Shape y = {x[0], extent(1, 1, "pad_h", "dilation_h", "stride_h"),
                          extent(2, 2, "pad_w", "dilation_w", "stride_w"), w[0]};
         return convolution_flop(y, w);
       }},
      {"conv2d_grad_input", [](const Arguments& of) { return convolution_flop(of.shape("dy"), of.shape("w")); }},
      {"conv2d_grad_filter",
       [](const Arguments& of) { return convolution_flop(of.shape("dy"), shape_from(of.number("w_shape"))); }},
      {"attention", [](const Arguments& of) { return 2.0 * attention_flop(of); }},
      {"attention_backward", [](const Arguments& of) { return 5.0 * attention_flop(of); }},
      {"self_attention", [](const Arguments& of) { return 2.0 * self_attention_flop(of); }},
      {"self_attention_backward", [](const Arguments& of) { return 5.0 * self_attention_flop(of); }}};
  return all;
}

double bytes_of(const TraceValues& values) {
  double bytes = 0;
  for (const TraceValue& v : values)
    if (v.kind == TraceValue::Kind::tensor && v.tensor.defined()) bytes += static_cast<double>(v.tensor.bytes());
  return bytes;
}

}  // namespace

OpWork work_of(const AnyOp& op, const TraceValues& arguments) {
  const auto found = products().find(op.name());
  return {.flop = found == products().end() ? 0.0 : found->second(Arguments(arguments)), .bytes = bytes_of(arguments)};
}

void add_results(OpWork& work, const TraceValues& results) { work.bytes += bytes_of(results); }

}  // namespace elinvar
