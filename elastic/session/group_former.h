#pragma once
// Forms groups of GPUs (comm/gpu_group.h) for the generations of a job, in a thread of its own while the job trains on,
// and lets go of those that are over in another, which never waits for who is told of the former. The newest generation
// counts: while its group is asked for, an older one that has not formed is given up.
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "comm/gpu_group.h"
#include "elastic/step/generation.h"

namespace elinvar {

class GroupFormer {
 public:
  // Called from the thread that forms, with nothing locked.
  struct Tells {
    std::function<void(int64_t generation, const NcclId& id)> named;  // by the first member: the others wait for it
    std::function<void(int64_t generation, std::shared_ptr<GpuGroup> group)> formed;
    std::function<void(int64_t generation, const std::string& reason)> failed;
    // It could not be made from another: a new one has to be asked for.
    std::function<void(int64_t generation)> not_shrunk;
    // What one of the others threw, which the thread has no other use for. It throws nothing itself.
    std::function<void(int64_t generation, const std::string& reason)> broke;
  };
  GroupFormer(std::shared_ptr<Nccl> nccl, Tells tells, std::chrono::duration<double> patience);
  ~GroupFormer();

  // From any thread; neither waits. A request for a group made from another takes that at once. One for a new group
  // takes the place of one of the same generation that was, or is being, made from another.
  void form(const GroupRequest& request);
  // Groups of generations before this one are over, but for that of generation `kept`, from which another may be made.
  // Nobody uses them any more, unless to wait for the device: one in the middle of a transfer, in which the device may
  // be stuck, is aborted.
  void drop_before(int64_t generation, int64_t kept = 0);

 private:
  void form_all(const std::stop_token& stop);
  void end_all(const std::stop_token& stop);
  void form_one(const GroupRequest& request, const std::stop_token& stop);
  void shrink_one(const GroupRequest& request, std::shared_ptr<GpuGroup> parent, const std::stop_token& stop);
  void keep(const GroupRequest& request, std::shared_ptr<GpuGroup> group);

  std::shared_ptr<Nccl> nccl_;
  Tells tells_;
  std::chrono::duration<double> patience_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<GroupRequest> wanted_;
  std::shared_ptr<GpuGroup> parent_;  // what that is to be made from
  int64_t forming_ = 0;               // the generation that is being formed
  std::stop_source give_up_;
  int64_t oldest_ = 0;  // whose group may still be used,
  int64_t kept_ = 0;    // or be what another is made from
  std::map<int64_t, std::shared_ptr<GpuGroup>> formed_;
  std::vector<std::shared_ptr<GpuGroup>> over_;
  std::jthread forms_, ends_;
};

}  // namespace elinvar
