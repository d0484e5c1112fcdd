// Launches: the blocks of a grid, and the barriers within a block.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "tests/ptx/failure.h"
#include "tests/ptx/kernels.h"
#include "tests/ptx/operation.h"
#include "tests/ptx/races.h"

namespace elinvar::ptx {
namespace {

bool is_set(const char* variable, const char* value) {
  const char* const text = std::getenv(variable);
  return text != nullptr && std::string(text) == value;
}

// The warps of a block. They take turns until each waits at the barrier or has ended; every other round begins with the
// last warp.
class BlockRun {
 public:
  BlockRun(std::vector<Warp>& warps, const Function& kernel, Block& block, bool ascending)
      : warps_(warps), kernel_(kernel), block_(block), ascending_(ascending) {}

  void run() {
    while (!round()) pass_barrier();
  }

 private:
  bool round() {
    bool ended = true;
    for (size_t turn = 0; turn < warps_.size(); ++turn) {
      Warp& warp = warps_[ascending_ ? turn : warps_.size() - 1 - turn];
      if (warp.live != 0 && !ptx::run(warp)) ended = false;
    }
    ascending_ = !ascending_;
    return ended;
  }

  void pass_barrier() {
    int barrier = -1;
    for (Warp& warp : warps_)
      each_lane(warp.at_barrier, [&](int lane) {
        if (barrier >= 0 && warp.next[lane] != barrier)
          throw PtxError(kernel_.name + ": threads of a block wait at different barriers");
        barrier = warp.next[lane]++;
      });
    for (Warp& warp : warps_) warp.at_barrier = 0;
    if (block_.races != nullptr) block_.races->pass_barrier();
  }

  std::vector<Warp>& warps_;
  const Function& kernel_;
  Block& block_;
  bool ascending_;
};

}  // namespace

RaceDetector* races_of_this_process() {
  static RaceDetector* const detector = is_set("ELINVAR_PTX_RACES", "on") ? new RaceDetector : nullptr;
  return detector;
}

void launch(Function& kernel, const Launch& launch, RaceDetector* races) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  if (launch.threads > kernel.max_threads) throw PtxError(kernel.name + ": more threads than .maxntid");
  static const bool backwards = is_set("ELINVAR_PTX_ORDER", "backwards");
  static auto& kept = *new std::map<uint64_t, std::vector<Warp>>;  // their memory is large
  std::vector<Warp>& warps = kept[kernel.number];
  warps.resize((launch.threads + kLanes - 1) / kLanes);
  Block block{.shared = {},
              .index = 0,
              .threads = launch.threads,
              .blocks = launch.blocks,
              .memory = Memory::instance().blocks(),
              .races = races};
  ++kernel.launches;
  if (races != nullptr) races->begin_launch();
  for (size_t w = 0; w < warps.size(); ++w)
    prepare(warps[w], kernel, block, static_cast<unsigned>(w) * kLanes, launch.parameters.data(), 0);
  for (unsigned turn = 0; turn < launch.blocks; ++turn) {
    block.index = backwards ? launch.blocks - 1 - turn : turn;
    block.shared.assign(kernel.shared_bytes + launch.dynamic_shared, 0xff);
    if (races != nullptr) races->begin_block();
    for (Warp& warp : warps) {
      const unsigned count = launch.threads - warp.first_thread;
      start(warp, count >= kLanes ? kAllLanes : (Lanes{1} << count) - 1);
    }
    BlockRun(warps, kernel, block, !backwards).run();
  }
}

}  // namespace elinvar::ptx
