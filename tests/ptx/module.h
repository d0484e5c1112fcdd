#pragma once
// The functions of a PTX file, decoded when they are needed, and its variables in global memory.
#include <map>
#include <memory>
#include <string>

#include "tests/ptx/decoder.h"
#include "tests/ptx/program.h"
#include "tests/ptx/text.h"

namespace elinvar::ptx {

class Module {
 public:
  explicit Module(ModuleText text);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const ModuleText& text() const { return text_; }
  std::shared_ptr<Function> find(const std::string& name);  // throws PtxError

 private:
  void declare(const std::string& variable);

  const ModuleText text_;
  ModuleNames names_;
  std::map<std::string, const FunctionText*> by_name_;
  std::map<std::string, std::shared_ptr<Function>> decoded_;
};

}  // namespace elinvar::ptx
