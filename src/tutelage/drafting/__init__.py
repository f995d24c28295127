"""Look at a folder or file of one's own, and write a recipe with comments: what is there, which unit and method, what is missing.

This is a look by the data's owner on their own machine. What the recipe says becomes public when a model is released; so columns,
categories and ranges are read off public records where there are any, and their owner confirms them (`data.declared`).
"""
