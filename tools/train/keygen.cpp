#include "comm/job_key.h"
#include "tensor/base/check.h"
#include "tools/train/commands.h"

namespace elinvar {

int keygen(const std::string& folder) {
  JobKey::make().save(folder);
  fmt::print("{}/job.key: give it to every process of the job, and to nobody else\n", folder);
  return 0;
}

}  // namespace elinvar
