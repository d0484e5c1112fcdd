#pragma once
// The options that select the computing device: --device, --threads and --isa, and for those that train --offload. They
// do not affect results.
#include <CLI/CLI.hpp>
#include <string>

#include "tensor/base/threads.h"
#include "tensor/isa.h"
#include "tensor/stream.h"

namespace elinvar {

struct DeviceOptions {
  std::string device = "auto";
  int threads = 0;  // 0: all that this process may use
  std::string isa = "auto";
  std::string offload = "none";  // nn/offload.h

  void add_to(CLI::App& command) {
    command.add_option("--device", device, "auto, cpu, cuda or cuda:NUMBER")->capture_default_str();
    command
        .add_option("--threads", threads, "CPU threads for the computation (default: all that this process may use)")
        ->check(CLI::Range(1, 1024).description(""));
    command.add_option("--isa", isa, "instruction set: auto, scalar, avx2 or avx512; all give the same bits")
        ->capture_default_str();
  }
  void add_offload_to(CLI::App& command) {
    command
        .add_option(
            "--offload", offload,
            "where the optimizer's state lies: none (on the device), host (GPUs: in the memory of the host), file "
            "(in the temporary folder) or file:FOLDER; with ,inputs after it, also the inputs of blocks that run again "
            "(run.recompute)")
        ->capture_default_str();
  }
  void apply() const {
    set_isa(parse_isa(isa));
    set_threads(threads > 0 ? threads : usable_threads());
  }
};

}  // namespace elinvar
