// doctest and torch both define CHECK; the tests use doctest's.
#pragma once

#include <torch/torch.h>
#undef CHECK
#include <doctest/doctest.h>
