#pragma once
// Forms groups of GPUs (comm/gpu_group.h) for the generations of a job in a separate thread, while the job continues to
// train. Another thread ends the groups that are over; it never waits for the callbacks of the first one. The newest
// generation counts: when its group is requested, an older group that has not formed yet is given up.
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
  // Callbacks, called from the forming thread with no lock held.
  struct Tells {
    std::function<void(int64_t generation, const NcclId& id)> named;  // by the first member; the others wait for the id
    std::function<void(int64_t generation, std::shared_ptr<GpuGroup> group)> formed;
    std::function<void(int64_t generation, const std::string& reason)> failed;
    // The group could not be made from another one: a new one must be requested.
    std::function<void(int64_t generation)> not_shrunk;
    // Receives what another callback threw. Must not throw.
    std::function<void(int64_t generation, const std::string& reason)> broke;
  };
  GroupFormer(std::shared_ptr<Nccl> nccl, Tells tells, std::chrono::duration<double> patience);
  ~GroupFormer();

  // Both functions may be called from any thread, and neither waits. A request for a group made from another takes the
  // other group at once. A request for a new group replaces one of the same generation that was, or is being, made from
  // another.
  void form(const GroupRequest& request);
  // Ends the groups of generations before `generation`, except the group of generation `kept`, from which another may
  // be made. The ended groups must be unused, except that a thread may wait for the device: a group in the middle of a
  // transfer, on which the device may be stuck, is aborted.
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
  std::shared_ptr<GpuGroup> parent_;  // the group from which the wanted one is made
  int64_t forming_ = 0;               // the generation whose group is being formed
  std::stop_source give_up_;
  int64_t oldest_ = 0;  // the oldest generation whose group may still be used
  int64_t kept_ = 0;    // the generation from whose group another may be made
  std::map<int64_t, std::shared_ptr<GpuGroup>> formed_;
  std::vector<std::shared_ptr<GpuGroup>> over_;
  std::jthread forms_, ends_;
};

}  // namespace elinvar
