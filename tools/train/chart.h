#pragma once
// A chart of lines over steps as text: axes, and dots of braille, eight to a character, or letters where a terminal has
// only ASCII.
#include <cstdint>
#include <string>
#include <vector>

namespace elinvar {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; what is not finite is left out
};

struct ChartStyle {
  int columns = 80, rows = 12;  // of the whole, without title and legend; of the part within the axes
  bool ascii = false;
  bool colours = false;      // of a terminal, one a line
  bool logarithmic = false;  // the vertical axis; what is not positive is left out
};

// Where several points share a column of dots their mean is drawn; without points there is a line that says so. Lines
// that colours do not tell apart are drawn with letters.
std::string chart(const std::string& title, const std::vector<ChartLine>& lines, const ChartStyle& style);

}  // namespace elinvar
