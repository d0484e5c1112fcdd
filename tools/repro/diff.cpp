// `repro diff`: decides from two run directories whether the runs are equal, and where they part.
#include <CLI/CLI.hpp>
#include <memory>

#include "tensor/base/check.h"
#include "tools/repro/commands.h"
#include "tools/repro/comparison.h"
#include "tools/repro/output.h"

namespace elinvar {

Command add_diff(CLI::App& repro) {
  struct Options {
    std::string a, b;
    bool json = false;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* app = repro.add_subcommand("diff", "whether two runs are equal, or where they part first");
  app->add_option("A", o->a, "a run directory")->required();
  app->add_option("B", o->b, "another one, perhaps with other workers or of another length")->required();
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] {
            const Comparison comparison = compare(RunRecord(o->a), RunRecord(o->b));
            if (o->json) print_json(to_json(comparison));
            else fmt::print("{}", to_text(comparison));
            return exit_code_of(comparison);
          }};
}

}  // namespace elinvar
