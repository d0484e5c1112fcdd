#pragma once
// Coverage: the kernels that were launched, and the instructions that some lane has executed. With
// ELINVAR_PTX_REACH=<folder> in the environment, a process writes its coverage there when it ends; reach_test.cpp adds
// up the files of the folder.
#include <memory>
#include <mutex>
#include <vector>

#include "tests/ptx/program.h"

namespace elinvar::ptx {

class Reach {
 public:
  static Reach& instance();
  void add(std::shared_ptr<Function> kernel);

 private:
  Reach();
  void write() const;

  std::mutex mutex_;
  std::vector<std::shared_ptr<Function>> kernels_;
};

}  // namespace elinvar::ptx
