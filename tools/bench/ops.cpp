#include "tools/bench/ops.h"

#include <fmt/format.h>

#include <functional>

#include "tensor/allocator.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/exact_attention.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tools/bench/gpu.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

double giga(const Tensor& t, double times) { return times * static_cast<double>(t.bytes()) / 1e9; }

class Cases {
 public:
  Cases(Device device, const std::string& filter, int repeat, Report& report)
      : device_(device), filter_(filter), repeat_(repeat), report_(report) {}

  bool wanted(const std::string& name) const { return name.find(filter_) != std::string::npos; }
  void time(const std::string& name, double gflop, double gbyte, const std::function<void()>& f,
            const nlohmann::ordered_json& more = {}) {
    if (wanted(name)) report_.add(name, seconds(f), gflop, gbyte, 0.0, "", more);
  }
  // Times a product of these extents, or an operation equivalent to one.
  void time_product(const std::string& name, int64_t m, int64_t n, int64_t k, const std::function<void()>& f) {
    if (!wanted(name)) return;
    const double gflop = 2.0 * static_cast<double>(m * n) * static_cast<double>(k) / 1e9;
    if (on_cpu()) return time(name, gflop, 0.0, f);
    const double own = seconds(f), cublas = cublas_seconds(device_, repeat_, m, n, k);
    report_.add(name, own, gflop, 0.0, 0.0, "",
                {{"cublas_gflop_per_s", cublas > 0.0 ? gflop / cublas : 0.0}, {"of_cublas", cublas / own}});
  }

  void products() {
    for (const int64_t n : {256, 512, 1024, 2048, 4096}) {
      const std::string name = fmt::format("matmul {0}x{0}x{0}", n);
      if (!wanted(name)) continue;
      const Tensor a = values({n, n}), b = values({n, n});
      time_product(name, n, n, n, [&] { matmul(a, b); });
      time_product(name + " a transposed", n, n, n, [&] { matmul(a.transpose(0, 1), b); });
      time_product(name + " b transposed", n, n, n, [&] { matmul(a, b.transpose(0, 1)); });
    }
  }

  // The products of a linear layer with exact numerics, and one whose factors are rounded already. Rounding the weight
  // and the input, once for all of them, is not timed with the gradients.
  void exact_products() {
    for (const int64_t n : {512, 1024, 2048, 4096}) {
      const std::string name = fmt::format("exact {0}x{0}x{0}", n);
      if (!wanted(name)) continue;
      const Tensor x = values({n, 1, n}), dy = values({n, 1, n}), weight = values({n, 1, n});
      const Quantized w = quantize_weight(weight), w_rows = pair_rows(w), rows = quantize_rows(x, w.channels);
      time_product(name + " product", n, n, n, [&] { exact_matmul(rows, w); });
      time_product(name + " forward", n, n, n, [&] { exact_matmul(quantize_rows(x, w.channels), w); });
      time_product(name + " input", n, n, n, [&] { exact_matmul(quantize_rows(dy, w.rows), w_rows); });
      time_product(name + " weight", n, n, n, [&] { exact_matmul(quantize_channels(dy, rows.rows), pair_rows(rows)); });
    }
  }

  void convolutions() {
    struct Conv {
      int64_t n, size, in, out, kernel, stride;
    };
    for (Conv c : {Conv{128, 32, 3, 16, 3, 1}, Conv{128, 32, 16, 16, 3, 1}, Conv{128, 16, 32, 32, 3, 1},
                   Conv{128, 8, 64, 64, 3, 1}, Conv{16, 224, 3, 64, 7, 2}, Conv{16, 56, 64, 64, 1, 1},
                   Conv{16, 56, 64, 64, 3, 1}, Conv{16, 56, 64, 256, 1, 1}, Conv{16, 56, 256, 64, 1, 1},
                   Conv{16, 56, 128, 128, 3, 2}, Conv{16, 28, 128, 512, 1, 1}, Conv{16, 14, 256, 256, 3, 1},
                   Conv{16, 14, 1024, 512, 1, 1}, Conv{16, 7, 512, 512, 3, 1}, Conv{16, 7, 512, 2048, 1, 1}}) {
      if (!on_cpu()) c.n *= 8;
      const std::string name =
          fmt::format("conv {}x{}x{} to {} {}x{}/{}", c.n, c.size, c.in, c.out, c.kernel, c.kernel, c.stride);
      if (!wanted(name)) continue;
      const ConvOptions options{
          .stride_h = c.stride, .stride_w = c.stride, .pad_h = c.kernel / 2, .pad_w = c.kernel / 2};
      const Tensor x = values({c.n, c.size, c.size, c.in}), w = values({c.out, c.kernel, c.kernel, c.in});
      const Tensor y = conv2d(x, w, {}, options);
      const int64_t positions = y.numel() / c.out, terms = c.kernel * c.kernel * c.in;
      time_product(name + " forward", positions, c.out, terms, [&] { conv2d(x, w, {}, options); });
      time_product(name + " input", positions, c.in, c.kernel * c.kernel * c.out,
                   [&] { conv2d_grad_input(y, w, x.shape(), options); });
      time_product(name + " filter", c.out, terms, positions, [&] { conv2d_grad_filter(y, x, w.shape(), options); });
    }
  }

  // Convolutions of MobileNet-v2 and EfficientNet-B0 that filter each channel separately. They are limited by memory,
  // so the bytes of images and results count; each is read or written once at least.
  void depthwise_convolutions() {
    struct Depthwise {
      int64_t n, size, channels, kernel, stride;
    };
    for (Depthwise c : {Depthwise{16, 112, 32, 3, 1}, Depthwise{16, 112, 96, 3, 2}, Depthwise{16, 56, 144, 3, 1},
                        Depthwise{16, 28, 240, 5, 1}, Depthwise{16, 14, 576, 3, 1}, Depthwise{16, 7, 960, 3, 1}}) {
      if (!on_cpu()) c.n *= 8;
      const std::string name =
          fmt::format("depthwise {}x{}x{} {}x{}/{}", c.n, c.size, c.channels, c.kernel, c.kernel, c.stride);
      if (!wanted(name)) continue;
      const ConvOptions options{.stride_h = c.stride,
                                .stride_w = c.stride,
                                .pad_h = c.kernel / 2,
                                .pad_w = c.kernel / 2,
                                .groups = c.channels};
      const Tensor x = values({c.n, c.size, c.size, c.channels}), w = values({c.channels, c.kernel, c.kernel, 1});
      const Tensor y = conv2d(x, w, {}, options);
      const double gflop = 2.0 * static_cast<double>(y.numel() * c.kernel * c.kernel) / 1e9;
      const double gbyte = giga(x, 1) + giga(y, 1);
      time(name + " forward", gflop, gbyte, [&] { conv2d(x, w, {}, options); });
      time(name + " input", gflop, gbyte, [&] { conv2d_grad_input(y, w, x.shape(), options); });
      time(name + " filter", gflop, gbyte, [&] { conv2d_grad_filter(y, x, w.shape(), options); });
    }
  }

  void attentions() {
    for (const int64_t t : {256, 1024}) {
      const std::string name = fmt::format("attention 4x{}x12x64", t);
      if (!wanted("exact " + name)) continue;
      const Tensor qkv = values({4, t, 3, 12, 64}), d_o = values({4, t, 12, 64});
      const AttentionResult result = self_attention(qkv, true, 0.0);
      const double gflop = 2.0 * 4 * 12 * 64 * static_cast<double>(t * t) / 1e9;  // half of it is masked
      time(name + " forward", gflop, 0.0, [&] { self_attention(qkv, true, 0.0); });
      time(name + " backward", 2.5 * gflop, 0.0, [&] { self_attention_backward(d_o, qkv, result, true, 0.0); });
      const Quantized heads = quantize_heads(qkv);
      const AttentionResult exact = exact_self_attention(heads, qkv.shape(), true, 0.0);
      time("exact " + name + " forward", gflop, 0.0, [&] { exact_self_attention(heads, qkv.shape(), true, 0.0); });
      time("exact " + name + " backward", 2.5 * gflop, 0.0,
           [&] { exact_self_attention_backward(d_o, heads, qkv.shape(), exact, true, 0.0); });
    }
  }

  void memory() {
    if (!on_cpu()) return memory_of(64 << 10);
    memory_of(4 << 10);
  }

 private:
  // Times cases on tables of this many rows of 1K elements.
  void memory_of(int64_t rows) {
    const Tensor table = values({rows, 1 << 10}), x = table.reshape({-1}), y = values({rows << 10}),
                 row = values({1 << 10});
    const std::string size = fmt::format("{}M", rows >> 10), shape = fmt::format("{}Kx1K", rows >> 10);
    time("add " + size, 0.0, giga(x, 3), [&] { add(x, y); });
    time("add row " + shape, 0.0, giga(x, 2), [&] { add(table, row); });
#define ELINVAR_TIME(name, Function) time(#name " " + size, 0.0, giga(x, 2), [&] { name(x); });
    ELINVAR_UNARY_FUNCTIONS(ELINVAR_TIME, ELINVAR_TIME)
#undef ELINVAR_TIME
    time("softmax " + shape, 0.0, giga(x, 2), [&] { softmax(table); });
    time("sum of columns " + shape, 0.0, giga(x, 1), [&] { sum(table, {0}, false); });
    time("sum of rows " + shape, 0.0, giga(x, 1), [&] { sum(table, {1}, false); });
    time("clone " + size, 0.0, giga(x, 2), [&] { x.clone(); });
    if (!on_cpu()) return;
    time("clone " + size + ", fresh pages", 0.0, giga(x, 2), [&] {
      HostAllocator::instance().release_cached();
      x.clone();
    });
  }

  bool on_cpu() const { return device_.kind == DeviceKind::cpu; }
  Tensor values(const Shape& shape) const {
    Tensor t = Tensor::empty(shape);
    for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = 0.01f * static_cast<float>(i % 101 - 50);
    return t.to(device_);
  }
  double seconds(const std::function<void()>& f) const {
    return on_cpu() ? median_seconds(2, repeat_, f) : gpu_seconds(device_, repeat_, f);
  }

  Device device_;
  std::string filter_;
  int repeat_;
  Report& report_;
};

}  // namespace

void run_ops(Device device, const std::string& filter, int repeat, Report& report) {
  Cases cases(device, filter, repeat, report);
  cases.products();
  cases.exact_products();
  cases.convolutions();
  cases.depthwise_convolutions();
  cases.attentions();
  cases.memory();
}

}  // namespace elinvar::bench
