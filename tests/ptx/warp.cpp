// Lanes that have diverged are executed in groups, the group at the lowest instruction first, until they meet again.
#include "tests/ptx/warp.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "tests/ptx/failure.h"
#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

using Kind = Instruction::Kind;

void fill(Warp& warp, const InitialRow& initial, unsigned first_thread) {
  using What = InitialRow::What;
  const Function& function = *warp.function;
  const auto value = [&](uint64_t lane) -> uint64_t {
    switch (initial.what) {
      case What::constant:
        return initial.value;
      case What::thread:
        return first_thread + lane;
      case What::block:
        return warp.block->index;
      case What::threads:
        return warp.block->threads;
      case What::blocks:
        return warp.block->blocks;
      case What::lane:
        return lane;
      case What::dynamic_shared:
        return function.shared_bytes;
      case What::parameter:
        return reinterpret_cast<uint64_t>(warp.parameters) + lane * warp.parameter_stride + initial.value;
      case What::local:
        return reinterpret_cast<uint64_t>(warp.local.data()) + lane * function.local_bytes;
      case What::call_argument:
        return reinterpret_cast<uint64_t>(warp.call_arguments.data()) + lane * function.call_bytes + initial.value;
    }
    return 0;
  };
  for (uint64_t lane = 0; lane < kLanes; ++lane)
    if (initial.bytes == 8) warp.row<uint64_t>(initial.row)[lane] = value(lane);
    else warp.row<uint32_t>(initial.row)[lane] = static_cast<uint32_t>(value(lane));
}

// One group of lanes at a time. The loop keeps the group's instruction in `at_`; the lanes' own are in Warp::next only
// while they are not in the group.
class Execution {
 public:
  explicit Execution(Warp& warp) : warp_(warp), code_(warp.function->code.data()) {}

  bool run() {
    while (choose_group()) {
      bool together = true;
      while (together) {
        if (at_ >= others_) {
          leave(group_, at_);
          break;
        }
        together = step(code_[at_]);
      }
    }
    return warp_.live == 0;
  }
  const Origin& current() const { return warp_.function->origins[static_cast<size_t>(at_)]; }

 private:
  bool choose_group() {
    const Lanes ready = warp_.live & ~(warp_.at_barrier | warp_.waiting_for_lanes);
    if (ready == 0) {
      if (warp_.live != 0 && warp_.waiting_for_lanes != 0) {
        at_ = warp_.next[std::countr_zero(warp_.waiting_for_lanes)];
        throw Fault("some lanes wait for others, which do not come");
      }
      return false;
    }
    at_ = INT_MAX;
    each_lane(ready, [&](int lane) { at_ = std::min(at_, warp_.next[lane]); });
    group_ = 0;
    others_ = INT_MAX;
    each_lane(ready, [&](int lane) {
      if (warp_.next[lane] == at_) group_ |= Lanes{1} << lane;
      else others_ = std::min(others_, warp_.next[lane]);
    });
    return true;
  }

  void leave(Lanes lanes, int at) {
    each_lane(lanes, [&](int lane) { warp_.next[lane] = at; });
  }

  // Executes an instruction; false if the groups may have changed.
  bool step(const Instruction& i) {
    Lanes lanes = group_;
    if (i.guard >= 0) {
      const Lanes guard = warp_.predicates[static_cast<size_t>(i.guard)];
      lanes &= i.guard_negated ? ~guard : guard;
    }
    i.reached |= lanes != 0;
    switch (i.kind) {
      case Kind::plain:
        if (lanes != 0) i.execute(warp_, i, lanes);
        ++at_;
        return true;
      case Kind::branch:
        return branch(i, lanes);
      case Kind::exit:
        return exit(lanes);
      case Kind::barrier:
        if (lanes != group_) throw Fault("a barrier under a predicate");
        leave(group_, at_);
        warp_.at_barrier |= group_;
        return false;
      case Kind::converged:
        return converge(i, lanes);
      case Kind::call:
        if (lanes != 0) enter(i, lanes);
        ++at_;
        return true;
    }
    return false;
  }

  bool branch(const Instruction& i, Lanes lanes) {
    if (lanes == group_) at_ = i.target;
    else if (lanes == 0) ++at_;
    else {
      leave(lanes, i.target);
      leave(group_ & ~lanes, at_ + 1);
      return false;
    }
    return true;
  }

  bool exit(Lanes lanes) {
    each_lane(lanes, [&](int lane) {
      if (!warp_.copies[lane].empty()) throw Fault("a thread ends before its copies have arrived");
    });
    if (!warp_.products.empty()) throw Fault("a warp ends before its products");
    warp_.live &= ~lanes;
    group_ &= ~lanes;
    ++at_;
    return group_ != 0;
  }

  // Waits until all lanes of the mask have arrived.
  bool converge(const Instruction& i, Lanes lanes) {
    if (lanes != group_) throw Fault("an exchange under a predicate");
    Lanes arrived = group_;
    each_lane(warp_.waiting_for_lanes, [&](int lane) {
      if (warp_.next[lane] == at_) arrived |= Lanes{1} << lane;
    });
    Lanes members = kAllLanes;
    if (i.members >= 0) members = warp_.row<uint32_t>(i.members)[std::countr_zero(group_)];
    if ((group_ & ~members) != 0) throw Fault("a lane takes part that is not in the mask");
    if ((members & ~warp_.live) != 0) throw Fault("the mask names lanes that have ended or never were");
    if ((members & ~arrived) != 0) {
      leave(group_, at_);
      warp_.waiting_for_lanes |= group_;
    } else {
      i.execute(warp_, i, arrived);
      warp_.waiting_for_lanes &= ~arrived;
      leave(arrived, at_ + 1);
    }
    return false;
  }

  void enter(const Instruction& i, Lanes lanes) {
    if (!warp_.called) warp_.called = std::make_unique<Warp>();
    const Call& call = warp_.function->calls[static_cast<size_t>(i.variant)];
    const Function& callee = *call.callee;
    std::vector<unsigned char> parameters(callee.parameter_bytes * kLanes);
    for (size_t lane = 0; lane < kLanes; ++lane)
      for (size_t k = 0; k < call.passed.size(); ++k)
        std::memcpy(parameters.data() + lane * callee.parameter_bytes + callee.parameters[k].at,
                    warp_.call_arguments.data() + lane * warp_.function->call_bytes + call.passed[k],
                    callee.parameters[k].bytes);
    Warp& called = *warp_.called;
    called.caller = &warp_;
    prepare(called, callee, *warp_.block, warp_.first_thread, parameters.data(), callee.parameter_bytes);
    start(called, lanes);
    if (!ptx::run(called)) throw Fault("a barrier in a function");
  }

  Warp& warp_;
  const Instruction* code_;
  Lanes group_ = 0;
  int at_ = 0, others_ = INT_MAX;
};

}  // namespace

void prepare(Warp& warp, const Function& function, Block& block, unsigned first_thread, const unsigned char* parameters,
             size_t parameter_stride) {
  const bool fresh = std::exchange(warp.rows_of, function.number) != function.number;
  warp.function = &function;
  warp.block = &block;
  warp.parameters = parameters;
  warp.parameter_stride = parameter_stride;
  warp.first_thread = first_thread;
  if (fresh) {
    RowOfLanes garbage;
    std::fill_n(garbage.values, kLanes, 0xa5a5a5a5u);
    warp.rows.assign(static_cast<size_t>(function.rows), garbage);
    warp.predicates.assign(static_cast<size_t>(function.predicates), 0xa5a5a5a5u);
    for (const auto& [index, value] : function.constant_predicates)
      warp.predicates[static_cast<size_t>(index)] = value ? kAllLanes : 0;
    warp.local.assign(function.local_bytes * kLanes, 0xff);
    warp.call_arguments.assign(function.call_bytes * kLanes, 0xff);
  }
  for (const InitialRow& initial : function.initial)
    if (fresh || initial.what != InitialRow::What::constant) fill(warp, initial, first_thread);
}

void start(Warp& warp, Lanes lanes) {
  for (const InitialRow& initial : warp.function->initial)
    if (initial.what == InitialRow::What::block) fill(warp, initial, warp.first_thread);
  warp.live = lanes;
  warp.at_barrier = warp.waiting_for_lanes = 0;
  std::fill_n(warp.next, kLanes, 0);
}

bool run(Warp& warp) {
  Execution execution(warp);
  try {
    return execution.run();
  } catch (const Fault& fault) {
    const Origin& i = execution.current();
    const Function& function = *warp.function;
    throw PtxError(function.file + ".ptx:" + std::to_string(i.line) + ": " + function.name + ": " + i.text + ": " +
                   fault.what() + " (block " + std::to_string(warp.block->index) + ", threads from " +
                   std::to_string(warp.first_thread) + ")");
  }
}

}  // namespace elinvar::ptx
