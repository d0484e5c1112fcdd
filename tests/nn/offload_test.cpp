// The state of optimisers in other memory and in files: what it costs a device and a process. That its bits are the
// same is tested in sliced_optimizer_test.cpp.
#include "nn/offload.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "nn/optimizer.h"
#include "tensor/base/check.h"
#include "tensor/heap.h"
#include "tests/support/disk_faults.h"
#include "tests/support/temporary_folder.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/traffic.h"
#endif

namespace elinvar {
namespace {

using To = Offload::To;

TEST(Offload, TheOptionIsRead) {
  const Device gpu{DeviceKind::cuda};
  const test::TemporaryFolder folder;
  EXPECT_EQ(parse_offload("none", {}).to, To::none);
  EXPECT_EQ(parse_offload("host", gpu).to, To::host);
  EXPECT_EQ(parse_offload("file", {}).folder, std::filesystem::temp_directory_path());
  const Offload here = parse_offload("file:" + folder.path(), gpu);
  EXPECT_EQ(here.to, To::file);
  EXPECT_EQ(here.folder, folder.path());
  EXPECT_FALSE(here.inputs);
  EXPECT_TRUE(parse_offload("file:" + folder.path() + ",inputs", {}).inputs);
  EXPECT_EQ(parse_offload("file:" + folder.path() + ",inputs", {}).folder, folder.path());
  EXPECT_TRUE(parse_offload("host,inputs", gpu).inputs);
  const auto error = [](const std::string& text) {
    return test::message_of<UsageError>([&] { parse_offload(text, {}); });
  };
  EXPECT_EQ(error("host"),
            "--offload host: this worker computes on the CPU, so the state of the optimizer is in the host's memory "
            "already; --offload file keeps it in a file");
  for (const char* text : {"disk", "", "file:", "files", "none,inputs", "file:,inputs", ",inputs", "file,state"})
    EXPECT_EQ(error(text),
              fmt::format("--offload: none, host, file or file:FOLDER expected, and perhaps ,inputs after it, got '{}'",
                          text));
  EXPECT_EQ(error("file:/absent"), "--offload file:/absent: there is no folder /absent");
}

// One large parameter and small ones.
Parameters parameters_of(int64_t large, Device device) {
  Parameters all;
  for (const int64_t n : {int64_t{5}, large, int64_t{5000}})
    all.list.push_back({std::to_string(n), Var(Tensor::full({n}, 0.5, DType::f32, device), true)});
  return all;
}
std::vector<Tensor> gradients_of(const Parameters& parameters, Device device) {
  std::vector<Tensor> gradients;
  for (const Parameter& p : parameters.list) gradients.push_back(Tensor::full(p.var.shape(), 0.25, DType::f32, device));
  return gradients;
}

// The most memory that this process has held since reset_peak(), in bytes.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }
int64_t peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) << 10;
  return 0;
}

TEST(Offload, AnUpdateHoldsLittleOfTheStateInMemory) {
  constexpr int64_t kElements = 4 << 20, kBytes = 2 * kElements * 4;  // of the state
  const test::TemporaryFolder folder;
  Parameters parameters = parameters_of(kElements, {});
  const std::vector<Tensor> gradients = gradients_of(parameters, {});
  for (const char* kind : {"adamw", "lamb"}) {
    const auto optimizer =
        make_optimizer({.kind = kind}, parameters, nullptr, {.to = To::file, .folder = folder.path(), .part = 1 << 16});
    EXPECT_EQ(test::entries(folder.path()), 0u);
    reset_peak();
    const auto before = static_cast<int64_t>(resident_memory());
    for (int step = 0; step < 2; ++step) optimizer->step(parameters, gradients, 0.1, step);
    EXPECT_LT(peak() - before, kBytes / 4) << kind;
    EXPECT_EQ(optimizer->state().size(), 6u);
  }
}

#ifdef ELINVAR_EMULATION

TEST(Offload, ADeviceHoldsAFewPartsOfTheState) {
  constexpr Device kGpu{DeviceKind::emulated};
  constexpr int64_t kElements = 1 << 18, kPart = 1 << 13;
  const test::TemporaryFolder folder;
  for (const To to : {To::none, To::host, To::file}) {
    Parameters parameters = parameters_of(kElements, kGpu);
    const std::vector<Tensor> gradients = gradients_of(parameters, kGpu);
    const int64_t others = emulation::in_use;
    emulation::peak_in_use = others;
    const auto optimizer =
        make_optimizer({.kind = "adamw"}, parameters, nullptr, {.to = to, .folder = folder.path(), .part = kPart});
    optimizer->step(parameters, gradients, 0.1, 0);
    if (to == To::none) EXPECT_GE(emulation::peak_in_use - others, 2 * 4 * kElements);
    else EXPECT_LE(emulation::peak_in_use - others, 3 * 2 * 4 * kPart + 1024) << "the part, the one before, the next";
  }
}

#endif

}  // namespace
}  // namespace elinvar
