#pragma once
// The subcommands of `train` besides those of every program that trains elastically (tools/launch/commands.h).
#include "tools/cli/subcommands.h"

namespace elinvar {

Command add_plot(CLI::App& train);
Command add_profile(CLI::App& train);
Command add_predict(CLI::App& train);  // classes of images
Command add_sample(CLI::App& train);
Command add_import(CLI::App& train);  // makes a run directory whose run begins with the weights of a file
Command add_export(CLI::App& train);
Command add_check(CLI::App& train);    // describes what a run would do
Command add_configs(CLI::App& train);  // lists and copies ready configurations
Command add_devices(CLI::App& train);  // lists this machine's devices
Command add_keygen(CLI::App& train);   // makes the key of a job

}  // namespace elinvar
