// Both have a CHECK; the tests' is doctest's.
#pragma once

#include <torch/torch.h>
#undef CHECK
#include <doctest/doctest.h>
