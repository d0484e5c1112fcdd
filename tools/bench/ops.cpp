#include "tools/bench/ops.h"

#include <fmt/format.h>

#include <functional>

#include "tensor/allocator.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tools/bench/timing.h"

namespace elinvar::bench {
namespace {

Tensor values(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = 0.01f * static_cast<float>(i % 101 - 50);
  return t;
}

double giga(const Tensor& t, double times) { return times * static_cast<double>(t.bytes()) / 1e9; }

class Cases {
 public:
  Cases(const std::string& filter, int repeat, Report& report) : filter_(filter), repeat_(repeat), report_(report) {}

  bool wanted(const std::string& name) const { return name.find(filter_) != std::string::npos; }
  void time(const std::string& name, double gflop, double gbyte, const std::function<void()>& f) {
    if (wanted(name)) report_.add(name, median_seconds(2, repeat_, f), gflop, gbyte);
  }

  void products() {
    for (const int64_t n : {256, 512, 1024, 2048, 4096}) {
      const std::string name = fmt::format("matmul {0}x{0}x{0}", n);
      if (!wanted(name)) continue;
      const Tensor a = values({n, n}), b = values({n, n});
      const double gflop = 2.0 * static_cast<double>(n * n) * static_cast<double>(n) / 1e9;
      time(name, gflop, 0.0, [&] { matmul(a, b); });
      time(name + " a transposed", gflop, 0.0, [&] { matmul(a.transpose(0, 1), b); });
      time(name + " b transposed", gflop, 0.0, [&] { matmul(a, b.transpose(0, 1)); });
    }
  }

  void convolutions() {
    struct Conv {
      int64_t n, size, in, out, kernel, stride;
    };
    for (const Conv& c : {Conv{128, 32, 3, 16, 3, 1}, Conv{128, 32, 16, 16, 3, 1}, Conv{128, 16, 32, 32, 3, 1},
                          Conv{128, 8, 64, 64, 3, 1}, Conv{16, 224, 3, 64, 7, 2}, Conv{16, 56, 64, 64, 1, 1},
                          Conv{16, 56, 64, 64, 3, 1}, Conv{16, 56, 64, 256, 1, 1}, Conv{16, 56, 256, 64, 1, 1},
                          Conv{16, 56, 128, 128, 3, 2}, Conv{16, 28, 128, 512, 1, 1}, Conv{16, 14, 256, 256, 3, 1},
                          Conv{16, 14, 1024, 512, 1, 1}, Conv{16, 7, 512, 512, 3, 1}, Conv{16, 7, 512, 2048, 1, 1}}) {
      const std::string name =
          fmt::format("conv {}x{}x{} to {} {}x{}/{}", c.n, c.size, c.in, c.out, c.kernel, c.kernel, c.stride);
      if (!wanted(name)) continue;
      const ConvOptions options{
          .stride_h = c.stride, .stride_w = c.stride, .pad_h = c.kernel / 2, .pad_w = c.kernel / 2};
      const Tensor x = values({c.n, c.size, c.size, c.in}), w = values({c.out, c.kernel, c.kernel, c.in});
      const Tensor y = conv2d(x, w, {}, options);
      const double gflop = 2.0 * static_cast<double>(y.numel()) * static_cast<double>(c.kernel * c.kernel * c.in) / 1e9;
      time(name + " forward", gflop, 0.0, [&] { conv2d(x, w, {}, options); });
      time(name + " input", gflop, 0.0, [&] { conv2d_grad_input(y, w, x.shape(), options); });
      time(name + " filter", gflop, 0.0, [&] { conv2d_grad_filter(y, x, w.shape(), options); });
    }
  }

  void attentions() {
    for (const int64_t t : {256, 1024}) {
      const std::string name = fmt::format("attention 4x{}x12x64", t);
      if (!wanted(name)) continue;
      const Tensor qkv = values({4, t, 3, 12, 64}), d_o = values({4, t, 12, 64});
      const AttentionResult result = self_attention(qkv, true, 0.0);
      const double gflop = 2.0 * 4 * 12 * 64 * static_cast<double>(t * t) / 1e9;  // half of it is masked
      time(name + " forward", gflop, 0.0, [&] { self_attention(qkv, true, 0.0); });
      time(name + " backward", 2.5 * gflop, 0.0, [&] { self_attention_backward(d_o, qkv, result, true, 0.0); });
    }
  }

  void memory() {
    const Tensor x = values({4 << 20}), y = values({4 << 20}), row = values({1 << 10});
    const Tensor table = x.reshape({4 << 10, 1 << 10});
    time("add 4M", 0.0, giga(x, 3), [&] { add(x, y); });
    time("add row 4Kx1K", 0.0, giga(x, 2), [&] { add(table, row); });
    time("exp 4M", 0.0, giga(x, 2), [&] { exp(x); });
    time("tanh 4M", 0.0, giga(x, 2), [&] { tanh(x); });
    time("softmax 4Kx1K", 0.0, giga(x, 2), [&] { softmax(table); });
    time("sum of columns 4Kx1K", 0.0, giga(x, 1), [&] { sum(table, {0}, false); });
    time("sum of rows 4Kx1K", 0.0, giga(x, 1), [&] { sum(table, {1}, false); });
    time("clone 4M", 0.0, giga(x, 2), [&] { x.clone(); });
    time("clone 4M, fresh pages", 0.0, giga(x, 2), [&] {
      HostAllocator::instance().release_cached();
      x.clone();
    });
  }

 private:
  std::string filter_;
  int repeat_;
  Report& report_;
};

}  // namespace

void run_ops(const std::string& filter, int repeat, Report& report) {
  Cases cases(filter, repeat, report);
  cases.products();
  cases.convolutions();
  cases.attentions();
  cases.memory();
}

}  // namespace elinvar::bench
