#pragma once
// A text chart of lines over steps: axes, and braille dots, eight per character, or letters where a terminal has only
// ASCII.
#include <cstdint>
#include <string>
#include <vector>

namespace elinvar {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; points that are not finite are left out
};

struct ChartStyle {
  int columns = 80, rows = 12;  // columns of the whole chart; rows within the axes
  bool ascii = false;
  bool colours = false;      // terminal colours, one per line
  bool logarithmic = false;  // logarithmic vertical axis; values that are not positive are left out
};

// Draws the mean where several points share a column of dots. Says so if there are no points. Draws lines with letters
// if colours do not distinguish them.
std::string chart(const std::string& title, const std::vector<ChartLine>& lines, const ChartStyle& style);

}  // namespace elinvar
