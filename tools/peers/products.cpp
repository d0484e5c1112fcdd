#include "tools/peers/products.h"

#include <cblas.h>
#include <omp.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

namespace elinvar::peers {
namespace {

using dnnl::memory;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory filled(const memory::desc& desc) {
  memory m(desc, engine());
  auto* values = static_cast<float*>(m.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) values[i] = 0.01f * static_cast<float>(i % 101) - 0.5f;
  return m;
}

Product product(const std::string& name, const dnnl::primitive& primitive,
                const std::unordered_map<int, memory>& operands) {
  return {name, [primitive, operands, stream = std::make_shared<dnnl::stream>(engine())] {
            primitive.execute(*stream, operands);
            stream->wait();
          }};
}

Product convolution(const std::string& name, const ConvGeometry& g, Direction direction, memory::format_tag images) {
  const auto desc = [](memory::dims dims, memory::format_tag tag) {
    return memory::desc(std::move(dims), memory::data_type::f32, tag);
  };
  const memory::desc x = desc({g.n, g.c, g.h, g.w}, images), y = desc({g.n, g.o, g.oh, g.ow}, images),
                     w = desc({g.o, g.c, g.kh, g.kw}, memory::format_tag::any);
  const memory::dims strides{g.stride_h, g.stride_w}, low{g.pad_h, g.pad_w},
      high{(g.oh - 1) * g.stride_h + g.kh - g.h - g.pad_h, (g.ow - 1) * g.stride_w + g.kw - g.w - g.pad_w};
  const auto direct = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, direct, x, w, y, strides, low, high}, engine());
  switch (direction) {
    case Direction::forward:
      return product(name, dnnl::convolution_forward(forward),
                     {{DNNL_ARG_SRC, filled(forward.src_desc())},
                      {DNNL_ARG_WEIGHTS, filled(forward.weights_desc())},
                      {DNNL_ARG_DST, filled(forward.dst_desc())}});
    case Direction::input: {
      const dnnl::convolution_backward_data::primitive_desc pd({direct, x, w, y, strides, low, high}, engine(),
                                                               forward);
      return product(name, dnnl::convolution_backward_data(pd),
                     {{DNNL_ARG_DIFF_SRC, filled(pd.diff_src_desc())},
                      {DNNL_ARG_WEIGHTS, filled(pd.weights_desc())},
                      {DNNL_ARG_DIFF_DST, filled(pd.diff_dst_desc())}});
    }
    case Direction::filter: {
      const dnnl::convolution_backward_weights::primitive_desc pd({direct, x, w, y, strides, low, high}, engine(),
                                                                  forward);
      return product(name, dnnl::convolution_backward_weights(pd),
                     {{DNNL_ARG_SRC, filled(pd.src_desc())},
                      {DNNL_ARG_DIFF_WEIGHTS, filled(pd.diff_weights_desc())},
                      {DNNL_ARG_DIFF_DST, filled(pd.diff_dst_desc())}});
    }
  }
  return {};
}

}  // namespace

std::vector<Product> gemms(const Gemm& of) {
  const auto matrix = [](int64_t rows, int64_t columns) {
    return filled(memory::desc({rows, columns}, memory::data_type::f32, memory::format_tag::ab));
  };
  const auto [m, n, k, ta, tb] = of;
  const int64_t lda = ta ? m : k, ldb = tb ? k : n;
  const memory a = matrix(m, k), b = matrix(k, n), c = matrix(m, n);
  const auto* a_data = static_cast<const float*>(a.get_data_handle());
  const auto* b_data = static_cast<const float*>(b.get_data_handle());
  auto* c_data = static_cast<float*>(c.get_data_handle());
  const auto small = [](int64_t v) { return static_cast<int>(v); };
  return {{"oneDNN",
           [=, keep = std::vector<memory>{a, b, c}] {
             dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a_data, lda, b_data, ldb, 0.0f, c_data, n);
           }},
          {"OpenBLAS", [=, keep = std::vector<memory>{a, b, c}] {
             cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, small(m),
                         small(n), small(k), 1.0f, a_data, small(lda), b_data, small(ldb), 0.0f, c_data, small(n));
           }}};
}

std::vector<Product> convolutions(const ConvGeometry& g, Direction direction) {
  return {convolution("oneDNN", g, direction, memory::format_tag::any),
          convolution("oneDNN nhwc", g, direction, memory::format_tag::nhwc)};
}

void set_peer_threads(int threads) {
  omp_set_num_threads(threads);
  openblas_set_num_threads(threads);
}

}  // namespace elinvar::peers
