// bench_peers: products compared with oneDNN and OpenBLAS, alternating in one process, and with the peak of
// fused multiply-adds of the same run. Built where both libraries are installed; nothing else depends on them.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tensor/ops/matmul.h"
#include "tensor/stream.h"
#include "tools/peak/timing.h"
#include "tools/peak/peak.h"
#include "tools/peers/products.h"
#include "tools/peers/team.h"

using namespace elinvar;
using peers::Direction;

namespace {

struct Options {
  std::vector<int> threads{1, 2};
  std::string isa = "auto", filter;
  int rounds = 5;
};

Tensor values(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = 0.01f * static_cast<float>(i % 101 - 50);
  return t;
}

// Geometric means and minima of the ratios of a table's rows to its peers.
class Table {
 public:
  Table(int threads, std::vector<std::string> peers, int rounds)
      : threads_(threads), rounds_(rounds), names_(std::move(peers)), ratios_(names_.size()) {
    set_threads(threads);
    peers::set_peer_threads(threads);
    peak_ = bench::measure_peak().gflops;
    fmt::print("\n{} thread{}, {}: peak {:.1f} GFLOP/s of fused multiply-adds\n\n", threads, threads == 1 ? "" : "s",
               name_of(current_isa()), peak_);
    fmt::print("{:<36} {:>8} {:>6}", "case", "GFLOP/s", "peak");
    for (const std::string& name : names_) fmt::print(" {:>12} {:>6}", name, "ratio");
    fmt::print("\n");
  }

  // Runs one case: the engine alternates with its peers; each figure is the median over the rounds.
  void add(const std::string& name, double gflop, const std::function<void()>& ours,
           const std::vector<peers::Product>& theirs) {
    std::vector<std::vector<double>> seconds(theirs.size() + 1);
    for (int r = 0; r < rounds_; ++r) {
      seconds[0].push_back(time(gflop, ours));
      for (size_t i = 0; i < theirs.size(); ++i) seconds[i + 1].push_back(time(gflop, theirs[i].run));
    }
    const double own = median(seconds[0]);
    fmt::print("{:<36} {:>8.1f} {:>4.0f} %", name, gflop / own, 100.0 * gflop / own / peak_);
    for (size_t i = 0; i < theirs.size(); ++i) {
      std::vector<double> ratio;
      for (size_t r = 0; r < seconds[0].size(); ++r) ratio.push_back(seconds[i + 1][r] / seconds[0][r]);
      ratios_[i].push_back(median(ratio));
      fmt::print(" {:>12.1f} {:>6.2f}", gflop / median(seconds[i + 1]), ratios_[i].back());
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

  void summary() const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (ratios_[i].empty()) continue;
      double log_sum = 0.0;
      for (double r : ratios_[i]) log_sum += std::log(r);
      fmt::print("against {}: geometric mean {:.2f}, minimum {:.2f}, {} cases\n", names_[i],
                 std::exp(log_sum / static_cast<double>(ratios_[i].size())),
                 *std::min_element(ratios_[i].begin(), ratios_[i].end()), ratios_[i].size());
    }
  }

 private:
  static double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
    return v[v.size() / 2];
  }

  // Threads of the library that ran before may still spin, OpenBLAS's for 30 ms; a pause lets them sleep.
  double time(double gflop, const std::function<void()>& f) const {
    if (threads_ > 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const int repeat = static_cast<int>(std::max(1.0, 0.01 * peak_ / gflop));  // about 10 ms or more
    return bench::median_seconds(1, repeat, f);
  }

  int threads_, rounds_;
  double peak_;
  std::vector<std::string> names_;
  std::vector<std::vector<double>> ratios_;
};

void run_gemms(const Options& o, int threads) {
  Table table(threads, {"oneDNN", "OpenBLAS"}, o.rounds);
  for (const int64_t n : {512, 768, 1024, 1536, 2048, 3072, 4096}) {
    const std::string name = fmt::format("{0} x {0} x {0}", n);
    if (name.find(o.filter) == std::string::npos) continue;
    const Tensor a = values({n, n}), b = values({n, n});
    table.add(
        name, 2.0 * static_cast<double>(n * n) * static_cast<double>(n) / 1e9, [&] { matmul(a, b); },
        peers::gemms({n, n, n}));
  }
  table.summary();
}

// A linear layer: its input and output features, and the rows that it processes in a step.
struct Linear {
  int64_t rows, in, out;
};

// Layers of the small GPT and of GPT-2, as in `bench models`.
constexpr Linear kLinears[] = {{4096, 384, 1152}, {4096, 384, 384},  {4096, 384, 1536}, {4096, 1536, 384},
                               {4096, 384, 256},  {1024, 768, 2304}, {1024, 768, 768},  {1024, 768, 3072},
                               {1024, 3072, 768}, {1024, 768, 50257}};

void run_linears(const Options& o, int threads) {
  Table table(threads, {"oneDNN", "OpenBLAS"}, o.rounds);
  for (const Linear& l : kLinears) {
    const std::string name = fmt::format("{} rows, {} to {}", l.rows, l.in, l.out);
    const double gflop = 2.0 * static_cast<double>(l.rows * l.in) * static_cast<double>(l.out) / 1e9;
    const Tensor x = values({l.rows, l.in}), w = values({l.out, l.in}), dy = values({l.rows, l.out});
    const auto add = [&](const char* which, const peers::Gemm& gemm, const std::function<void()>& ours) {
      const std::string full = fmt::format("{} {}", name, which);
      if (full.find(o.filter) != std::string::npos) table.add(full, gflop, ours, peers::gemms(gemm));
    };
    add("forward", {.m = l.rows, .n = l.out, .k = l.in, .transpose_b = true}, [&] { matmul(x, w.transpose(0, 1)); });
    add("input", {.m = l.rows, .n = l.in, .k = l.out}, [&] { matmul(dy, w); });
    add("weight", {.m = l.out, .n = l.in, .k = l.rows, .transpose_a = true}, [&] { matmul(dy.transpose(0, 1), x); });
  }
  table.summary();
}

struct Conv {
  int64_t n, size, in, out, kernel, stride;
};

// Every shape of ResNet-50 at 224 pixels, then of VGG-19 at 32.
constexpr Conv kConvs[] = {
    {16, 224, 3, 64, 7, 2},     {16, 56, 64, 64, 1, 1},    {16, 56, 64, 64, 3, 1},    {16, 56, 64, 256, 1, 1},
    {16, 56, 256, 64, 1, 1},    {16, 56, 256, 128, 1, 1},  {16, 56, 128, 128, 3, 2},  {16, 28, 128, 512, 1, 1},
    {16, 56, 256, 512, 1, 2},   {16, 28, 512, 128, 1, 1},  {16, 28, 128, 128, 3, 1},  {16, 28, 512, 256, 1, 1},
    {16, 28, 256, 256, 3, 2},   {16, 14, 256, 1024, 1, 1}, {16, 28, 512, 1024, 1, 2}, {16, 14, 1024, 256, 1, 1},
    {16, 14, 256, 256, 3, 1},   {16, 14, 1024, 512, 1, 1}, {16, 14, 512, 512, 3, 2},  {16, 7, 512, 2048, 1, 1},
    {16, 14, 1024, 2048, 1, 2}, {16, 7, 2048, 512, 1, 1},  {16, 7, 512, 512, 3, 1},   {128, 32, 3, 64, 3, 1},
    {128, 32, 64, 64, 3, 1},    {128, 16, 64, 128, 3, 1},  {128, 16, 128, 128, 3, 1}, {128, 8, 128, 256, 3, 1},
    {128, 8, 256, 256, 3, 1},   {128, 4, 256, 512, 3, 1},  {128, 4, 512, 512, 3, 1},  {128, 2, 512, 512, 3, 1}};

void run_convolutions(const Options& o, int threads) {
  Table table(threads, {"oneDNN", "oneDNN nhwc"}, o.rounds);
  for (const Conv& c : kConvs) {
    const std::string name =
        fmt::format("{}x{}x{} to {} {}x{}/{}", c.n, c.size, c.in, c.out, c.kernel, c.kernel, c.stride);
    const ConvOptions options{.stride_h = c.stride, .stride_w = c.stride, .pad_h = c.kernel / 2, .pad_w = c.kernel / 2};
    const Shape x_shape{c.n, c.size, c.size, c.in}, w_shape{c.out, c.kernel, c.kernel, c.in};
    const ConvGeometry g = conv_geometry(x_shape, w_shape, options);
    const double gflop =
        2.0 * static_cast<double>(g.n * g.oh * g.ow * g.o) * static_cast<double>(g.kh * g.kw * g.c) / 1e9;
    const Tensor x = values(x_shape), w = values(w_shape), dy = values({g.n, g.oh, g.ow, g.o});
    const auto add = [&](const char* which, Direction direction, const std::function<void()>& ours) {
      const std::string full = fmt::format("{} {}", name, which);
      if (full.find(o.filter) != std::string::npos) table.add(full, gflop, ours, peers::convolutions(g, direction));
    };
    add("forward", Direction::forward, [&] { conv2d(x, w, {}, options); });
    add("input", Direction::input, [&] { conv2d_grad_input(dy, w, x_shape, options); });
    add("filter", Direction::filter, [&] { conv2d_grad_filter(dy, x, w_shape, options); });
  }
  table.summary();
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app{"Products beside oneDNN and OpenBLAS. Figures are medians of rounds in which all take turns."};
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--threads", o.threads, "thread counts, a table each")->capture_default_str();
  app.add_option("--isa", o.isa, "the engine's instruction set: auto, scalar, avx2 or avx512")->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds a case")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--filter", o.filter, "only cases whose name contains this");
  const auto* gemm = app.add_subcommand("gemm", "square matrix products, 512 to 4096");
  const auto* linear = app.add_subcommand("linear", "the linear layers of two GPTs, each in its three directions");
  app.add_subcommand("conv", "the convolutions of ResNet-50 and VGG-19, each in its three directions");
  const auto* team = app.add_subcommand("team", "short tasks handed to the engine's threads and to OpenMP's");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  set_isa(parse_isa(o.isa));
  for (const int threads : o.threads) {
    if (team->parsed()) peers::run_team(threads, o.rounds);
    else if (gemm->parsed()) run_gemms(o, threads);
    else if (linear->parsed()) run_linears(o, threads);
    else run_convolutions(o, threads);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& e) {
    std::fprintf(stderr, "bench_peers: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_peers: %s\n", e.what());
    return 3;
  }
}
