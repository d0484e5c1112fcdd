#include "tools/pool/daemon/live_world.h"

#include "comm/job_key.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar::pool {

namespace fs = std::filesystem;

constexpr int64_t kEndOfLog = 2000;  // bytes

LiveWorld::LiveWorld(const Store& store, std::string train, bool keys)
    : store_(store), train_(std::move(train)), keys_(keys) {}

// The job's directory is for its owner only. The result of the run's previous part is deleted, because it no longer
// counts.
void LiveWorld::prepare(const JobRecord& job) {
  const fs::path directory = store_.job_directory(job.id);
  for (const fs::path& path : {directory.parent_path(), directory}) make_private_directory(path);
  const fs::path config = directory / "config.toml";  // rewritten each time: the store holds what was submitted
  if (!fs::is_regular_file(config) || read_file(config) != job.config) replace_file(config, job.config);
  if (keys_ && !fs::exists(directory / "key" / "job.key")) JobKey::make().save(directory / "key");
  fs::remove(directory / "run" / "result.json");
}

std::string LiveWorld::start(const std::vector<std::string>& words, const fs::path& log) {
  return start_process(words, log);
}

std::string LiveWorld::end_of_log(const fs::path& log) { return end_of_file(log, kEndOfLog); }

const RunStatus& LiveWorld::status(Id job, double now) {
  auto found = looked_.find(job);
  if (found == looked_.end())
    found = looked_.emplace(job, Looked{RunStatusReader(store_.job_directory(job) / "run"), 0, {}}).first;
  Looked& looked = found->second;
  if (now != looked.at) {  // at most once a tick
    looked.at = now;
    looked.status = looked.watch.look(now);
  }
  return looked.status;
}

void LiveWorld::request(Id job, const std::vector<std::string>& words) {
  std::erase_if(asking_, [](const std::string& handle) { return !process_state(handle).running; });
  const fs::path directory = store_.job_directory(job);
  std::vector<std::string> all = {train_, "ctl", directory / "run"};
  all.insert(all.end(), words.begin(), words.end());
  if (keys_) all.insert(all.end(), {"--key", directory / "key"});
  try {
    asking_.push_back(start_process(all, directory / "ctl.log"));
  } catch (const Failure&) {  // treated like a request without an answer; the job's directory may be gone
  }
}

}  // namespace elinvar::pool
