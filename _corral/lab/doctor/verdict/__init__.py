"""The verdict of a diagnosis: does the run learn?"""
